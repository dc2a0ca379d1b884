package verbs

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// Connect dials a listener and returns when the QP is in RTS. It ends with ctx
// or after Options.SetupTimeout, whatever the peer and the kernel do.
func (q *qp) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	d := q.pd.dev
	ird, ord, err := d.depths(p, d.attr.MaxConnectPrivate)
	if err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	setup, cancel := context.WithTimeout(ctx, d.fabric.opts.SetupTimeout)
	defer cancel()
	if err := q.begin(cancel); err != nil {
		return rdma.ConnInfo{}, opError("connect", addr, err)
	}
	var info rdma.ConnInfo
	if d.fabric.opts.Connect == ConnectCM {
		info, err = q.dialCM(setup, addr, ird, ord, p.PrivateData)
	} else {
		info, err = q.dialTCP(setup, addr, ird, ord, p.PrivateData)
	}
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: the queue pair was closed while it was connecting", rdma.ErrClosed)
		}
		err = opError("connect", addr, err)
		q.fail(err)
		return info, err
	}
	return info, nil
}

// acceptInto is ConnRequest.Accept of both ways to connect: it claims target
// and the request, and has run set up the connection.
func acceptInto(ctx context.Context, d *device, target rdma.QP, p rdma.ConnParams, from string, claim func() error,
	run func(ctx context.Context, q *qp, ird, ord int) (rdma.ConnInfo, error)) (rdma.ConnInfo, error) {
	fail := func(err error) (rdma.ConnInfo, error) { return rdma.ConnInfo{}, opError("accept", from, err) }
	q, ok := target.(*qp)
	if !ok || q == nil || q.pd.dev != d {
		return fail(fmt.Errorf("%w: the queue pair is not of the listener's device", rdma.ErrInvalid))
	}
	ird, ord, err := d.depths(p, d.attr.MaxAcceptPrivate)
	if err != nil {
		return fail(err)
	}
	setup, cancel := context.WithTimeout(ctx, d.fabric.opts.SetupTimeout)
	defer cancel()
	if err := q.begin(cancel); err != nil {
		return fail(err)
	}
	err = claim()
	var info rdma.ConnInfo
	if err == nil {
		info, err = run(setup, q, ird, ord)
	}
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: the queue pair was closed while it was connecting", rdma.ErrClosed)
		}
		_, err = fail(err)
		q.fail(err)
		return rdma.ConnInfo{}, err
	}
	return info, nil
}
