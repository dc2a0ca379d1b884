package layout

import "errors"

// What can be wrong with bytes that were READ. The parsers of single items,
// beats and ring entries return these values themselves, so that a get that
// meets a torn item allocates nothing; ParseRegionHeader wraps them with
// detail. None of them says anything about a key: the reader reads again, and
// then asks.
var (
	// ErrTorn: the checksum does not hold. The item was overwritten between
	// two words of the READ, or the place holds something else by now.
	ErrTorn = errors.New("layout: checksum does not hold (torn or reused memory)")
	// ErrShort: more bytes are needed than were given; ItemView.Need says how
	// many. The lengths that say so are not verified.
	ErrShort = errors.New("layout: more bytes needed")
	// ErrFormat: the bytes are not such a structure at all.
	ErrFormat = errors.New("layout: not the expected structure")
	// ErrFormatVersion: written in another format version. The text names both.
	ErrFormatVersion = errors.New("layout: other format version")
	// ErrIncarnation: written by another incarnation of the server.
	ErrIncarnation = errors.New("layout: other incarnation")
)
