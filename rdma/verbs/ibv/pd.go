package ibv

// A PD is a protection domain, struct ibv_pd: QPs reach only memory of theirs.
type PD struct {
	object
	ctx *Context
}

// AllocPD is ibv_alloc_pd(3).
func (c *Context) AllocPD() (*PD, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	h, errno := sysAllocPD(c.h)
	if errno != 0 {
		return nil, callError("ibv_alloc_pd", errno)
	}
	c.kids.add("PD")
	return &PD{object: object{key: newKey(), h: h}, ctx: c}, nil
}

// Context is the device that p belongs to.
func (p *PD) Context() *Context { return p.ctx }

// Close is ibv_dealloc_pd(3). It fails with EBUSY while an MR, SRQ or QP of p
// is open.
func (p *PD) Close() error {
	done, err := p.destroy("ibv_dealloc_pd", sysDeallocPD)
	if done {
		p.ctx.kids.done("PD")
	}
	return err
}

// An MR is a registered memory region, struct ibv_mr.
type MR struct {
	object
	pd   *PD
	Addr uint64
	Len  int
	LKey uint32
	RKey uint32
}

// RegMR is ibv_reg_mr(3): it pins length bytes at addr and gives the device
// access to them. The memory stays mapped until Close returned. It should be
// mapped memory, not Go's heap, whose collector knows nothing of the device.
// ENOMEM nearly always is the limit of locked memory; the error tells it.
func (p *PD) RegMR(addr uintptr, length int, access Access) (*MR, error) {
	if err := p.use(); err != nil {
		return nil, err
	}
	defer p.mu.RUnlock()
	h, lkey, rkey, errno := sysRegMR(p.h, addr, length, access)
	if errno != 0 {
		return nil, callError("ibv_reg_mr", errno)
	}
	p.kids.add("MR")
	return &MR{object: object{key: newKey(), h: h}, pd: p, Addr: uint64(addr), Len: length, LKey: lkey, RKey: rkey}, nil
}

// Close is ibv_dereg_mr(3). Once it has returned, no device reads or writes the
// memory any more; requests that still name it fail with an access error.
func (m *MR) Close() error {
	done, err := m.destroy("ibv_dereg_mr", sysDeregMR)
	if done {
		m.pd.kids.done("MR")
	}
	return err
}
