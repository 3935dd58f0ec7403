#!/usr/bin/env python3
"""Writes golden.h: the bytes of every format of docs/log-format.md and docs/wire-format.md.

An encoder of its own, made from the documents and not from the C++ code, so that the two check each
other. Run: python3 tests/unit/log/golden.py > tests/unit/log/golden.h
"""
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def crc32c(b, crc=0):
    crc^=0xFFFFFFFF
    for x in b:
        crc^=x
        for _ in range(8): crc=(crc>>1)^(0x82F63B78 if crc&1 else 0)
    return crc^0xFFFFFFFF
VOL=bytes(range(0x10,0x20))
def rec(op, body, file_id, a=(0,0,0), seq=7):
    h=struct.pack('<IHHII',0x31524C53,1,op,len(body),crc32c(body))+VOL+struct.pack('<QQQQQQQQQI',3,seq,0x1122334455667788,seq-1,seq-2,file_id,*a,0)
    return h+struct.pack('<I',crc32c(h))+body
def t16(s): return struct.pack('<H',len(s))+s
def t32(s): return struct.pack('<I',len(s))+s
attr=struct.pack('<IIIIqqII',0x1f,0o4755,1000,100,-1,1700000000,5,999999999)
setx=t16(b'user.k')+t32(b'v\0w')
remx=t16(b'user.k')+t32(b'')
name=struct.pack('<Q',5)+t16(b'f')
def create(d,mode,uid,gid,rdev,nm,target,xs):
    return struct.pack('<QIIIIQ',d,mode,uid,gid,len(xs),rdev)+t16(nm)+t16(target)+b''.join(t16(k)+t32(v) for k,v in xs)
c1=create(5,0o100640,1000,100,0,b'new',b'',[(b'user.a',b'b')])
c2=create(1,0o120777,0,0,0,b'ln',b'/t',[])
ren=struct.pack('<QQQI',5,6,9,0)+t16(b'a')+t16(b'bc')
renw=struct.pack('<QQQI',5,6,9,4)+t16(b'a')+t16(b'bc')+struct.pack('<QII',46,1000,100)
adopt=struct.pack('<I',0x81)+t16(b'\x01\x02\x03')+t16(b'd/f')
recs=[('Write',1,b'hello',42,(4096,0,0)),('Truncate',2,b'',42,(100,0,0)),('Fallocate',3,b'',42,(8,16,3)),
('SetAttr',4,attr,42,(0,0,0)),('SetXattr',5,setx,42,(0,0,0)),('RemoveXattr',6,remx,42,(0,0,0)),('Create',7,c1,43,(0,0,0)),('CreateSymlink',7,c2,44,(0,0,0)),
('Link',8,name,42,(0,0,0)),('Unlink',9,name,42,(1,0,0)),('Rename',10,ren,42,(0,0,0)),('RenameWhiteout',10,renw,42,(0,0,0)),('Cancel',11,b'',0,(6,0,0)),('OnDisk',12,b'',42,(5,0,0)),('Adopt',13,adopt,45,(0,0,0))]
def frame(t,count,payload):
    h=struct.pack('<IBBHII',0x31464C53,1,t,count,len(payload),0)+VOL+struct.pack('<QQQQQQI',3,0xABCDEF0123456789,111,4,6,7,0)
    return h+struct.pack('<I',crc32c(h))+payload
def sealed(key,key_id,sender,counter,frame):
    prefix=struct.pack('<IBBHIIQ',0x32464C53,2,0,0,key_id,sender,counter)
    return prefix+AESGCM(key).encrypt(struct.pack('<IQ',sender,counter),frame,prefix)
def frag(seq,rb,off,piece):
    h=struct.pack('<QIII',seq,rb,off,0); return h+struct.pack('<I',crc32c(h))+piece
def ack(inc,base,cont,trim,free,prom,flags,ranges):
    f=struct.pack('<QQQQQQHH',inc,base,cont,trim,free,prom,flags,len(ranges)); r=b''.join(struct.pack('<QQ',*x) for x in ranges)
    return f+struct.pack('<I',crc32c(f+b'\0\0\0\0'+r))+r
def varint(n):
    out=b''
    while n>=0x80: out+=bytes([n&0x7f|0x80]); n>>=7
    return out+bytes([n])
def zigzag(d): return varint(2*d if d>=0 else -2*d-1)
def write(seq,body,ts,offset):
    h=struct.pack('<IHHII',0x31524C53,1,1,len(body),crc32c(body))+VOL+struct.pack('<QQQQQQQQQI',3,seq,ts,6,5,42,offset,0,0,0)
    return h,crc32c(h)
def compact():
    # Two writes of one file, one behind the other. The frame says durable 6 and trim 4.
    _,c1=write(7,b'hello',0x1122334455667788,4096); _,c2=write(8,b'world',0x1122334455667788+1000,4101)
    first=struct.pack('<H',0b010110001)+varint(5)+zigzag(42)+zigzag(4096)+zigzag(5-4)+struct.pack('<QII',0x1122334455667788,crc32c(b'hello'),c1)+b'hello'
    return first+struct.pack('<HIII',0b111111111,1000,crc32c(b'world'),c2)+b'world'
def state(gen,open_,epoch,mode,boot,members,acks,mount,cp,ts,lim,re,rs):
    s=struct.pack('<IHHQ',0x31534C53,1,0,gen)+VOL+struct.pack('<QBBBBI',epoch,open_,mode,len(boot),len(members),acks)+struct.pack('<QQQQQQ',mount,cp,ts,lim,re,rs)
    s+=boot.ljust(40,b'\0')
    for a,i,b in members: s+=struct.pack('<QQB7x',i,b,len(a))+a.ljust(200,b'\0')
    s=s.ljust(4092,b'\0'); return s+struct.pack('<I',crc32c(s))
SALT=0x0123456789ABCDEF
def lhdr(cap,gen,start,reach):
    s=(struct.pack('<IHH',0x314C4C53,2,0)+VOL+struct.pack('<QQQQQ',cap,gen,start,SALT,reach)).ljust(4092,b'\0'); return s+struct.pack('<I',crc32c(s))
def entry(kind,pb,check,pos,synced):
    h=struct.pack('<IHHIIQQI',0x31454C53,kind,0,pb,check,pos,synced,0); return h+struct.pack('<I',crc32c(struct.pack('<Q',SALT)+h))
def decision(e,l,c,n,d):
    h=struct.pack('<QQQQI',e,l,c,n,d); return h+struct.pack('<I',crc32c(h))


def split(data):
    text = data.hex()
    lines = [text[i:i + 80] for i in range(0, len(text), 80)] or [""]
    return "\n".join('    "%s"' % line for line in lines)


def constant(name, data):
    print("inline constexpr char k%s[] =\n%s;\n" % (name, split(data)))


def main():
    print("// Written by golden.py; see there. Hexadecimal.")
    print("#ifndef SALIUS_TESTS_UNIT_LOG_GOLDEN_H_")
    print("#define SALIUS_TESTS_UNIT_LOG_GOLDEN_H_\n")
    print("namespace salius::golden {\n")
    for n, op, b, f, a in recs:
        constant("Record" + n, rec(op, b, f, a))
    r = rec(1, b"hello", 42, (4096, 0, 0))
    constant("FrameRecords", frame(1, 1, r))
    constant("FrameFragment", frame(2, 0, frag(7, 112 + 40, 20, b"twenty bytes of piece")[:24 + 20]))
    constant("FrameAck", frame(3, 0, ack(0x1111222233334444, 3, 9, 2, 1 << 20, 4, 0x9,
                                         [(11, 12), (14, 14)])))
    constant("FrameProbe", frame(4, 0, b""))
    constant("FrameCompact", frame(5, 2, compact()))
    constant("SealedProbe", sealed(bytes(range(0x80, 0x90)), 0x0A0B0C0D, 3, 0x1122334455, frame(4, 0, b"")))
    s = state(9, 1, 3, 2, b"01234567-89ab-cdef-0123-456789abcdef",
              [(b"10.0.0.1:7400", 0x1111222233334444, 1), (b"[::1]:7400", 5, 8)],
              2, 77, 41, 0x1122334455667788, 1002, 2, 99)
    constant("StateSlotUsed", s[:136 + 2 * 224])
    constant("StateSlotCrc", s[4092:])
    h = lhdr(1 << 20, 3, 4096, 8192)
    constant("LogHeaderUsed", h[:64])
    constant("LogHeaderCrc", h[4092:])
    check = struct.unpack("<I", r[108:112])[0]
    constant("LogEntryRecord", entry(1, len(r), check, 4096, 4000))
    d = decision(3, 99, 41, 58, 0xDEADBEEF)
    constant("LogEntryDecision", entry(2, 40, crc32c(d), 4256, 4096))
    constant("Decision", d)
    constant("LogEntryPad", entry(3, 1000, 0, 8192, 8000))
    print("}  // namespace salius::golden\n")
    print("#endif  // SALIUS_TESTS_UNIT_LOG_GOLDEN_H_")


if __name__ == "__main__":
    main()
