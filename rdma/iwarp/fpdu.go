package iwarp

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The FPDU, the frame of MPA in full operation (RFC 5044 section 4). Markers
// are never used.
//
//	 0         2                     2+n       2+n+pad    +4
//	┌─────────┬─────────────────────┬─────────┬──────────┐
//	│ ULPDU   │ ULPDU: one DDP      │ 0 to 3  │ CRC32C   │
//	│ length n│ segment             │ zeroes  │          │
//	└─────────┴─────────────────────┴─────────┴──────────┘
//
// The CRC covers everything before it and stands there as iSCSI writes it,
// low byte first. With CRC switched off by both ends the field stays, as zero.
const (
	fpduLengthLen = 2
	fpduCRCLen    = 4
	fpduMaxULPDU  = 1<<16 - 1
	// fpduMaxLen is the longest FPDU: a length of 65535, 3 bytes of pad.
	fpduMaxLen = fpduLengthLen + fpduMaxULPDU + 3 + fpduCRCLen
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errCRC is a checksum that does not fit: TCP was fooled or the peer is broken.
var errCRC = errors.New("MPA CRC mismatch")

// fpduPad is how many zero bytes follow a ULPDU of n bytes.
func fpduPad(n int) int { return -(fpduLengthLen + n) & 3 }

// fpduLen is the whole length in bytes of the FPDU around n bytes.
func fpduLen(n int) int { return fpduLengthLen + n + fpduPad(n) + fpduCRCLen }

// beginFPDU reserves the length field; endFPDU gets the offset it returns.
func beginFPDU(dst []byte) (buf []byte, start int) {
	return append(dst, 0, 0), len(dst)
}

// endFPDU completes the FPDU that began at start: length, pad, CRC. Whatever
// was appended since beginFPDU is the ULPDU.
func endFPDU(dst []byte, start int, crc bool) []byte {
	n := len(dst) - start - fpduLengthLen
	binary.BigEndian.PutUint16(dst[start:], uint16(n))
	const zeroes = "\x00\x00\x00"
	dst = append(dst, zeroes[:fpduPad(n)]...)
	var sum uint32
	if crc {
		sum = crc32.Update(0, castagnoli, dst[start:])
	}
	return binary.LittleEndian.AppendUint32(dst, sum)
}

// nextFPDU takes the first FPDU off b. It returns n = 0 when b does not hold
// all of it yet; want is then the length it will have, as far as b tells (at
// most fpduMaxLen). The ULPDU is a view of b and may be empty. Nothing of it is
// looked at before its CRC is right.
func nextFPDU(b []byte, crc bool) (ulpdu []byte, n, want int, err error) {
	if len(b) < fpduLengthLen {
		return nil, 0, fpduLengthLen, nil
	}
	size := int(binary.BigEndian.Uint16(b))
	want = fpduLen(size)
	if len(b) < want {
		return nil, 0, want, nil
	}
	sumOff := want - fpduCRCLen
	if crc && crc32.Update(0, castagnoli, b[:sumOff]) != binary.LittleEndian.Uint32(b[sumOff:]) {
		return nil, 0, want, errCRC
	}
	return b[fpduLengthLen : fpduLengthLen+size], want, want, nil
}
