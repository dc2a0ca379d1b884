package layout

import "math"

// The cells, behind the reclaim ring of region 0: one of 128 bytes for each replica of a group that the store has. By
// a cell a reader of a replicated shard knows that the leader it READ from had not been deposed when the get began:
//
//	 0 │ word            the highest term that the replica has made durable; it only rises. 2^64-1: there is no replica any more (EndedWord)
//	 8 │ configuration   index of the newest configuration entry that is applied here; it only rises
//	16 │ ready           the term in which the replica leads and has published its marker; 0 after a start
//	24 │ reserved, zero  to 64
//	64 │ published       index of the newest entry that the replica has published; it only rises. It stands in a line of its own, because
//	   │                 each publish writes it, and gets that READ the words above would have that line move with it
//	72 │ reserved, zero  to 128
//
// The word rises before a vote of its term leaves the node, so whoever was elected has a majority of the voters whose words are
// at least its term. A reader that knows the leader's term T and the configuration C, and then finds
//
//	leader's word = T, leader's configuration = C, word = T of so many other voters that all of them are a majority of C
//
// in READs that were posted after its get began, knows that nobody of a later term had been elected by then: two majorities
// have a voter in common, and its word would be higher. There is no checksum, because each word is believed alone.
//
// If the store gives its replica up, and gets another one of the group in the same life, the cell is that one's, and its words begin anew (BeginCell). It is never
// another group's.
//
// Published is for readers who take what is older. An entry is acknowledged after the leader has published it and raised this number, so
// a reader who has believed the leader's cell at a time knows an index, and the memory of whatever replica shows that index, or a later one, shows all
// that was acknowledged before that time. 0: the replica does not tell.
const (
	// CellSize is how far apart cells are, in bytes; CellRead is how many bytes of one a reader READs.
	CellSize = 128
	CellRead = 24
	// PublishedRead is how many bytes a reader READs to learn what is published, at CellPublished.
	PublishedRead = wordSize
	// MaxCells is how many there are at most: a node of a cluster has 4 to 16 replicas as a rule, and the most groups that a
	// cluster can have is as many.
	MaxCells = 256

	offCellWord   = 0
	offCellConfig = offCellWord + wordSize
	offCellReady  = offCellConfig + wordSize

	offCellPublished = 64
)

var _ [0]struct{} = [CellRead - offCellReady - wordSize]struct{}{}

// CellsSize is the size of so many cells, in bytes: whole pages.
func CellsSize(cells int) int {
	return (cells*CellSize + PageSize - 1) / PageSize * PageSize
}

// A Cell is what a replica tells readers. The zero value is that of a replica which takes no part yet.
type Cell struct {
	Word   uint64 // 0: no term yet
	Config uint64 // 0: the replica takes no part yet
	Ready  uint64 // 0: it does not lead, or has not published its marker
}

// StoreCell writes a cell, of which the first CellRead bytes are words of the server's memory that begin with zeros, at byte offset off of mem. One goroutine writes a cell at a time. The word comes first: who sees
// another word is new sees that the term is.
func StoreCell(mem []byte, off int, c Cell) {
	raiseWord(mem, off+offCellWord, c.Word)
	raiseWord(mem, off+offCellConfig, c.Config)
	StoreWord(mem, off+offCellReady, c.Ready)
}

// EndedWord is the word of a cell whose replica the store has given up: no replica has made such a term durable, so nobody believes the cell.
const EndedWord = math.MaxUint64

// EndCell says that the store has no replica any more whose cell is at byte offset off of mem. As StoreCell is called.
func EndCell(mem []byte, off int) {
	StoreWord(mem, off+offCellWord, EndedWord)
	StoreWord(mem, off+offCellReady, 0)
}

// BeginCell gives a cell at byte offset off of mem to a replica, whose first word is c.Word, and which has published nothing yet. The cell is new, or
// was ended by EndCell: its words, which only rise otherwise, may fall here. The first word comes last, because until then nobody believes the others. As
// StoreCell is called.
func BeginCell(mem []byte, off int, c Cell) {
	StoreWord(mem, off+offCellPublished, 0)
	StoreWord(mem, off+offCellConfig, c.Config)
	StoreWord(mem, off+offCellReady, c.Ready)
	StoreWord(mem, off+offCellWord, c.Word)
}

// ParseCell reads what a reader has READ of a cell, of whatever server: every value of the words is a cell. It reads the first CellRead bytes of a cell; b begins with them. It fails with ErrShort.
func ParseCell(b []byte) (Cell, error) {
	if len(b) < CellRead {
		return Cell{}, ErrShort
	}
	return Cell{Word: getWord(b, offCellWord), Config: getWord(b, offCellConfig), Ready: getWord(b, offCellReady)}, nil
}

// StorePublished raises what a cell at byte offset off of mem says that its replica has published: all that the entry of that index and those before it
// have done is in the memory before. One goroutine calls it at a time.
func StorePublished(mem []byte, off int, index uint64) { raiseWord(mem, off+offCellPublished, index) }

// CellPublished is where the word of a cell stands that says what is published.
func CellPublished(cell Place) Place { return PlaceOfByte(cell.Byte() + offCellPublished) }

// ParsePublished reads the PublishedRead bytes at CellPublished, of whatever server: every value is an index, and 0 says that the replica does not
// tell. It fails with ErrShort.
func ParsePublished(b []byte) (uint64, error) {
	if len(b) < PublishedRead {
		return 0, ErrShort
	}
	return getWord(b, 0), nil
}
