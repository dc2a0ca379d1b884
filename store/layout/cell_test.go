package layout

import (
	"errors"
	"testing"
)

// TestCell: a cell parses as it was stored, its word and its configuration never go back, and what is not its own stays.
func TestCell(t *testing.T) {
	mem := make([]byte, 3*CellSize)
	for i := range mem {
		mem[i] = 0xee
	}
	clear(mem[CellSize : CellSize+CellRead])
	for _, c := range []struct{ store, want Cell }{
		{Cell{Word: 3, Config: 1}, Cell{Word: 3, Config: 1}},
		{Cell{Word: 3, Config: 1, Ready: 3}, Cell{Word: 3, Config: 1, Ready: 3}},
		{Cell{Word: 2, Config: 7, Ready: 2}, Cell{Word: 3, Config: 7, Ready: 2}},
		{Cell{Word: 4, Config: 6}, Cell{Word: 4, Config: 7}},
		{Cell{Word: 1 << 60, Config: 1 << 61, Ready: 1 << 62}, Cell{Word: 1 << 60, Config: 1 << 61, Ready: 1 << 62}},
	} {
		StoreCell(mem, CellSize, c.store)
		if got, err := ParseCell(mem[CellSize:][:CellRead]); err != nil || got != c.want {
			t.Errorf("%+v stored: %+v, %v; want %+v", c.store, got, err, c.want)
		}
	}
	for i, b := range mem {
		if (i < CellSize || i >= CellSize+CellRead) && b != 0xee {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
	if _, err := ParseCell(mem[:CellRead-1]); !errors.Is(err, ErrShort) {
		t.Errorf("a short one: %v", err)
	}
	for n, want := range map[int]int{0: 0, 1: PageSize, PageSize / CellSize: PageSize, PageSize/CellSize + 1: 2 * PageSize} {
		if got := CellsSize(n); got != want {
			t.Errorf("%d cells take %d bytes, want %d", n, got, want)
		}
	}
}

// TestCellPublished: what is published only rises, stands in a line of its own, and changes nothing else of the cell.
func TestCellPublished(t *testing.T) {
	mem := make([]byte, 2*CellSize)
	StoreCell(mem, CellSize, Cell{Word: 3, Config: 1, Ready: 3})
	for _, c := range [][2]uint64{{0, 0}, {7, 7}, {6, 7}, {1 << 60, 1 << 60}} {
		StorePublished(mem, CellSize, c[0])
		at := CellPublished(PlaceOfByte(CellSize)).Byte()
		if got, err := ParsePublished(mem[at:][:PublishedRead]); err != nil || got != c[1] || at%64 != 0 || at < CellSize+64 || at >= 2*CellSize {
			t.Errorf("%d stored: %d at byte %d, %v; want %d", c[0], got, at, err, c[1])
		}
	}
	if got, err := ParseCell(mem[CellSize:]); err != nil || got != (Cell{Word: 3, Config: 1, Ready: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParsePublished(mem[:PublishedRead-1]); !errors.Is(err, ErrShort) {
		t.Errorf("a short one: %v", err)
	}
}

// TestCellIsOneLine: what a reader READs of a cell is in one line of the cache.
func TestCellIsOneLine(t *testing.T) {
	if CellSize%64 != 0 || CellRead > 64 || PageSize%CellSize != 0 {
		t.Errorf("cells of %d bytes, of which %d are READ", CellSize, CellRead)
	}
}

// TestCellEnds: a cell that was ended shows a word that no term is, and one that begins again shows what it is given, lower words, too.
func TestCellEnds(t *testing.T) {
	mem := make([]byte, 3*CellSize)
	StoreCell(mem, CellSize, Cell{Word: 9, Config: 8, Ready: 9})
	StorePublished(mem, CellSize, 70)
	EndCell(mem, CellSize)
	if got, err := ParseCell(mem[CellSize:]); err != nil || got.Word != EndedWord || got.Ready != 0 {
		t.Errorf("ended: %+v, %v", got, err)
	}
	StoreCell(mem, CellSize, Cell{Word: 10, Config: 8})
	if got, _ := ParseCell(mem[CellSize:]); got.Word != EndedWord {
		t.Errorf("a term is believed of a cell that was ended: %+v", got)
	}
	BeginCell(mem, CellSize, Cell{Word: 9, Config: 2})
	published, err := ParsePublished(mem[CellPublished(PlaceOfByte(CellSize)).Byte():])
	if got, bad := ParseCell(mem[CellSize:]); got != (Cell{Word: 9, Config: 2}) || published != 0 || errors.Join(err, bad) != nil {
		t.Errorf("begun again: %+v, published %d, %v, %v", got, published, err, bad)
	}
	StoreCell(mem, CellSize, Cell{Word: 11, Config: 4, Ready: 11})
	if got, _ := ParseCell(mem[CellSize:]); got != (Cell{Word: 11, Config: 4, Ready: 11}) {
		t.Errorf("%+v", got)
	}
	for i, b := range mem {
		if (i < CellSize || i >= 2*CellSize) && b != 0 {
			t.Fatalf("byte %d of another cell is %d", i, b)
		}
	}
}
