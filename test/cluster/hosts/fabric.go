package hosts

import (
	"context"

	"github.com/rdmakv/rdmakv/rdma"
)

// A placed fabric makes its connections through a function of its host, which may
// run the dialling somewhere else, or go to another address.
type placed struct {
	rdma.Fabric
	via func(addr string, dial func(addr string) error) error
}

type placedDevice struct {
	rdma.Device
	f *placed
}

type placedPD struct {
	rdma.PD
	f *placed
}

type placedQP struct {
	rdma.QP
	f *placed
}

func (f *placed) Open(ctx context.Context, name string) (rdma.Device, error) {
	d, err := f.Fabric.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return placedDevice{d, f}, nil
}

func (d placedDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return placedPD{pd, d.f}, nil
}

func (p placedPD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q, err := p.PD.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	return placedQP{q, p.f}, nil
}

func (q placedQP) Connect(ctx context.Context, addr string, p rdma.ConnParams) (info rdma.ConnInfo, err error) {
	err = q.f.via(addr, func(addr string) error {
		info, err = q.QP.Connect(ctx, addr, p)
		return err
	})
	return info, err
}
