package memory

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Keeper has descriptors outlive this process (internal/keeper). After its first error it is gone, and the next process finds nothing of this node.
type Keeper interface {
	// Put has a descriptor kept under a name, in place of another; it stays the caller's.
	Put(name string, fd int) error
	// Drop lets go of what is kept under a name.
	Drop(name string) error
	// Gone is closed when there is no keeper any more.
	Gone() <-chan struct{}
}

// Keeping is what a node has of its keeper: the connection, and what the life before has left, by name. The descriptors are the owner's of
// the Keeping, which is one Kept.
type Keeping struct {
	Keeper Keeper
	Left   map[string]int
}

// The names under which a node's memory is kept.
const (
	recordName   = "record"
	regionPrefix = "region-"
)

// A Kept is Regions that outlive the process. Where devices map the regions into other processes (rdma.CapMapped), a
// region that the life before has left is copied into a new one, because such memory is sealed against a second writer; else it is used as it is.
type Kept struct {
	*Regions
	keeper Keeper
	record *mem.Block

	mu      sync.Mutex
	left    map[uint32]*mem.Block
	leaving bool
}

// Keep has regions outlive the process, of which none has been allocated yet. recordBytes is the length of the record.
func Keep(r *Regions, k *Keeping, recordBytes int) (*Kept, error) {
	kept := &Kept{Regions: r, keeper: k.Keeper, left: make(map[uint32]*mem.Block)}
	r.opt.Kept = !r.opt.Shared
	var errs []error
	for name, fd := range k.Left {
		if err := kept.take(name, fd, recordBytes); err != nil {
			// Else the keeper would have it for ever.
			errs = append(errs, err)
			_ = k.Keeper.Drop(name)
		}
	}
	k.Left = nil
	if err := errors.Join(errs...); err != nil {
		r.log.Warn(base.LogAlways, "some of the memory that was kept cannot be mapped", "err", err)
	}
	if kept.record != nil {
		return kept, nil
	}
	// Regions without a record are given back by the store, which believes nothing without one.
	block, err := mem.Alloc(recordBytes, mem.Options{Kept: true, Tag: "record"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: memory that outlives the process: %w", err), kept.Forget())
	}
	kept.record = block
	kept.put(recordName, block)
	return kept, nil
}

// take maps what was kept under a name. The keeper is another process, and what it has may be of any kind and size.
func (k *Kept) take(name string, fd, recordBytes int) error {
	block, err := mem.Adopt(fd, "kept")
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if name == recordName && block.Size() == recordBytes {
		k.record = block
		return nil
	}
	id, _ := strings.CutPrefix(name, regionPrefix)
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || name != nameOf(uint32(n)) { // one region has one name
		return errors.Join(fmt.Errorf("server: %q of %d bytes is nothing that a node keeps", name, block.Size()), block.Free())
	}
	k.left[uint32(n)] = block
	return nil
}

// Record implements region.Keeper.
func (k *Kept) Record() []byte { return k.record.Bytes() }

// Left implements region.Keeper.
func (k *Kept) Left() map[uint32][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := make(map[uint32][]byte, len(k.left))
	for id, block := range k.left {
		left[id] = block.Bytes()
	}
	return left
}

// Alloc implements region.Memory.
func (k *Kept) Alloc(id uint32, kind layout.RegionKind, size int) ([]byte, error) {
	b, err := k.Regions.Alloc(id, kind, size)
	if err == nil {
		k.put(nameOf(id), k.blockOf(id))
	}
	return b, err
}

// Adopt implements region.Keeper.
func (k *Kept) Adopt(id uint32, kind layout.RegionKind) ([]byte, error) {
	k.mu.Lock()
	block := k.left[id]
	delete(k.left, id)
	k.mu.Unlock()
	if block == nil {
		return nil, fmt.Errorf("server: no region %d was left", id)
	}
	if !k.opt.Shared {
		return k.register(id, kind, block)
	}
	// The keeper has the old region until the new one is complete: who ends in between leaves either.
	b, err := k.Regions.Alloc(id, kind, block.Size())
	if err != nil {
		return nil, errors.Join(err, block.Free())
	}
	copy(b, block.Bytes())
	k.put(nameOf(id), k.blockOf(id))
	return b, block.Free()
}

// Forget implements region.Keeper.
func (k *Kept) Forget() error {
	k.mu.Lock()
	left := maps.Clone(k.left)
	clear(k.left)
	k.mu.Unlock()
	var errs []error
	for id, block := range left {
		_ = k.keeper.Drop(nameOf(id)) // as put
		errs = append(errs, block.Free())
	}
	return errors.Join(errs...)
}

// Leave implements region.Keeper.
func (k *Kept) Leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaving = true
}

// Free implements region.Memory.
func (k *Kept) Free(id uint32) error {
	k.mu.Lock()
	leaving := k.leaving
	k.mu.Unlock()
	if !leaving {
		_ = k.keeper.Drop(nameOf(id)) // as put

	}
	return k.Regions.Free(id)
}

// put has a block kept. If that fails the keeper is gone, which its connection tells; the node goes on, and its next start begins empty.
func (k *Kept) put(name string, block *mem.Block) { _ = k.keeper.Put(name, block.Descriptor()) }

func (k *Kept) blockOf(id uint32) *mem.Block { return (*k.byID.Load())[id].mem }

func nameOf(id uint32) string { return regionPrefix + strconv.FormatUint(uint64(id), 10) }
