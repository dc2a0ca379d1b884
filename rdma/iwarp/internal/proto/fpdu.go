package proto

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
	// FPDULengthLen, FPDUCRCLen are the bytes of the fields around a ULPDU, its pad apart.
	FPDULengthLen = 2
	FPDUCRCLen    = 4
	// MaxULPDU is the longest ULPDU, bytes.
	MaxULPDU = 1<<16 - 1
	// MaxFPDULen is the longest FPDU: a length of 65535, 3 bytes of pad.
	MaxFPDULen = FPDULengthLen + MaxULPDU + 3 + FPDUCRCLen
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum continues sum, the CRC32C of what came before b; 0 begins one.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// errCRC is a checksum that does not fit: TCP was fooled or the peer is broken.
var errCRC = errors.New("MPA CRC mismatch")

// fpduPad is how many zero bytes follow a ULPDU of n bytes.
func fpduPad(n int) int { return -(FPDULengthLen + n) & 3 }

// FPDULen is the whole length in bytes of the FPDU around n bytes.
func FPDULen(n int) int { return FPDULengthLen + n + fpduPad(n) + FPDUCRCLen }

// AppendFPDULength begins an FPDU whose ULPDU has size bytes.
func AppendFPDULength(dst []byte, size int) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(size))
}

// BeginFPDU reserves the length field; EndFPDU gets the offset it returns.
func BeginFPDU(dst []byte) (buf []byte, start int) {
	return append(dst, 0, 0), len(dst)
}

// EndFPDU completes the FPDU that began at start: length, pad, CRC. All that was appended
// since BeginFPDU is the ULPDU.
func EndFPDU(dst []byte, start int, crc bool) []byte {
	n := len(dst) - start - FPDULengthLen
	binary.BigEndian.PutUint16(dst[start:], uint16(n))
	dst = append(dst, zeroes[:fpduPad(n)]...)
	var sum uint32
	if crc {
		sum = Checksum(0, dst[start:])
	}
	return binary.LittleEndian.AppendUint32(dst, sum)
}

// EndFPDUAround is EndFPDU for an FPDU without CRC of which apart bytes stand elsewhere: they
// are the end of the ULPDU, behind what was appended since BeginFPDU.
func EndFPDUAround(dst []byte, start, apart int) []byte {
	n := len(dst) - start - FPDULengthLen + apart
	binary.BigEndian.PutUint16(dst[start:], uint16(n))
	return append(dst, zeroes[:fpduPad(n)+FPDUCRCLen]...)
}

const zeroes = "\x00\x00\x00\x00\x00\x00\x00"

// NextFPDU takes the first FPDU off b. It returns n = 0 when b does not hold all of it
// yet; want is then the length it will have, as far as b tells (at most MaxFPDULen). The
// ULPDU is a view of b and may be empty. Nothing in it is looked at before its CRC is
// right.
func NextFPDU(b []byte, crc bool) (ulpdu []byte, n, want int, err error) {
	if len(b) < FPDULengthLen {
		return nil, 0, FPDULengthLen, nil
	}
	size := int(binary.BigEndian.Uint16(b))
	want = FPDULen(size)
	if len(b) < want {
		return nil, 0, want, nil
	}
	sumOff := want - FPDUCRCLen
	if crc && Checksum(0, b[:sumOff]) != binary.LittleEndian.Uint32(b[sumOff:]) {
		return nil, 0, want, errCRC
	}
	return b[FPDULengthLen : FPDULengthLen+size], want, want, nil
}
