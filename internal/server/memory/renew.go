package memory

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A region's registrations while its rkey is renewed; when the old ones may go is
// for rotate.go.

// renew registers a region anew with every device. It reports whether there is
// such a region. After an error everything is as before.
func (r *Regions) renew(id uint32) (ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := (*r.byID.Load())[id]
	if s == nil {
		return false, nil
	}
	fresh := make([]rdma.MR, len(s.mrs))
	for dev, old := range s.mrs {
		if old == nil {
			continue
		}
		pd := r.pds[dev]
		if fresh[dev], err = pd.RegMR(s.mem.Bytes(), rdma.AccessRemoteRead); err != nil {
			err = fmt.Errorf("server: registering region %d (%v, %d bytes) anew with %s/%s: %w: each region needs room for two registrations for a moment; "+
				"is the limit of locked memory (ulimit -l) too low?", id, s.kind, s.mem.Size(), pd.Device().Attr().Fabric, pd.Device().Name(), err)
			for _, mr := range fresh[:dev] {
				if mr != nil {
					err = errors.Join(err, mr.Close())
				}
			}
			return false, err
		}
	}
	c := *s
	c.mrs = fresh
	r.change(func(m map[uint32]*slab) { m[id] = &c })
	for dev, mr := range s.mrs {
		if mr != nil {
			r.old[id] = append(r.old[id], oldMR{dev, mr})
		}
	}
	return true, nil
}

// dropOld deregisters what renew has replaced. What cannot be deregistered is
// kept, with its memory.
func (r *Regions) dropOld(ids []uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, r.dropOldLocked(id))
	}
	return errors.Join(errs...)
}

func (r *Regions) dropOldLocked(id uint32) error {
	return r.closeOldLocked(id, func(oldMR) bool { return true })
}

// closeOldLocked deregisters those of a region's old registrations that which names.
func (r *Regions) closeOldLocked(id uint32, which func(oldMR) bool) error {
	var errs []error
	var left []oldMR
	for _, o := range r.old[id] {
		if !which(o) {
			left = append(left, o)
			continue
		}
		if err := o.mr.Close(); err != nil {
			left = append(left, o)
			errs = append(errs, fmt.Errorf("server: deregistering region %d: %w", id, err))
		}
	}
	if delete(r.old, id); len(left) > 0 {
		r.old[id] = left
	}
	return errors.Join(errs...)
}
