package store

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/layout"
)

// ReadHeld copies bytes of a held item from offset off on, for a caller who may
// not READ it himself: what stood in memory, word by word. off and len(dst) are
// multiples of 8 within the item. The caller sees to it that less than a lease
// has passed since Hold: later the memory may be anybody's.
//
// It fails with ErrClosed.
func (s *Store) ReadHeld(h *Held, off int, dst []byte) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if h.aside != nil {
		copy(dst, h.aside[off:h.Size])
		return nil
	}
	mem := s.table.Bytes(h.Place, h.Size)
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], layout.LoadWord(mem, off+i))
	}
	return nil
}
