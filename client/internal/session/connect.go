package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/places"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Connect makes a session with the server at addr, which is reached by w:
// connection, proof of the secret in both directions, Hello and Welcome, region
// table, first lease. Whether it is the server that was wanted, its owner finds out. reach, a child of ctx, bounds the part in which it may
// turn out that no server is reached this way. answered says that a server
// was: then an error is its refusal or its silence, and another way would only
// lead to the same one.
func Connect(ctx, reach context.Context, o *Options, addr string, w Way, t *device.Device) (_ *Session, answered bool, err error) {
	s := &Session{
		Options: *o, Device: t, Addr: addr, Way: w, Born: time.Now(),
		link: link{
			clock:     o.Clock,
			ReadSpace: turnstile.New(t.MaxReads, o.Config.MaxWaiting, base.ErrOverloaded),
			pingTurn:  turnstile.New(1, o.Config.MaxWaiting, base.ErrOverloaded),
		},
		life: life{Now: o.Clock.Now, idle: make(chan struct{}, 1), Down: make(chan struct{}), Gone: make(chan struct{})},
	}
	s.link.life, s.Groups.s = &s.life, s
	s.version = wire.VersionMax
	if err := s.build(); err != nil {
		s.Devices.Retire(t) // what refuses queues today may be gone tomorrow: look anew
		s.destroy()
		return nil, false, err
	}
	defer func() {
		if err != nil {
			s.Fail(err)
			<-s.Gone
		}
	}()
	go s.watchQP()

	secret := s.Config.Secret
	request := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Features: wire.FeatureAside | wire.FeaturePack | wire.FeatureParts | wire.FeatureWords | wire.FeatureAnew, Tenant: wire.TenantOf(s.Config.Tenant)}
	rand.Read(request.Nonce[:])
	hello := wire.AppendConnect(nil, secret, request)
	info, err := s.QP.Connect(reach, w.Addr, rdma.ConnParams{PrivateData: hello})
	if err != nil {
		answered, err = connectError(err, info.PrivateData)
		return nil, answered, err
	}
	answer := wire.Unpad(info.PrivateData, wire.AcceptSize)
	accept, err := wire.ParseAccept(answer)
	if err != nil {
		return nil, true, fmt.Errorf("%w: whoever answers at %s does not speak this protocol: %v", base.ErrProtocol, addr, err)
	}
	if !wire.VerifyAccept(secret, hello, answer) {
		return nil, true, fmt.Errorf("%w: the server does not know the secret", base.ErrAuth)
	}
	s.version, s.Incarnation = accept.Version, accept.Incarnation
	out, in := wire.NewSeals(secret, hello, answer)
	s.outbox.seal, s.outbox.packs = out, accept.Features&wire.FeaturePack != 0
	s.sealIn.Store(in)
	p := s.Clock.Unlimited(ctx)
	posted, err := s.hello(&p, hello, answer)
	if err != nil {
		return nil, true, err
	}
	s.outbox.most = s.RequestSize()
	// The server may now READ what large puts stage for it.
	if err := s.QP.SetAccess(rdma.AccessRemoteRead); err != nil {
		return nil, true, err
	}
	v, reclaim, err := s.fetchView(&p)
	if err != nil {
		return nil, true, err
	}
	s.view.Store(v)
	s.toldView.Store(v.Version) // it has told us
	s.looked.Store(s.Clock.Coarse())
	s.Dir = layout.NewDir(&v.View)
	s.Cache = places.NewCache(s.Config.CacheEntries, reclaim, device.Collapse)
	s.Touches.start()
	s.suspects.start()
	s.Lease.start(s.Welcome.Lease, posted, reclaim)
	return s, true, nil
}

// hello proves the secret and takes the server's terms. It returns when the
// request was posted, on the lease clock: the first lease counts from there.
func (s *Session) hello(p *base.Limit, connect, accept []byte) (posted int64, err error) {
	sl, err := s.Open(p)
	if err != nil {
		return 0, err
	}
	msg := wire.AppendHello(sl.Buf[:0], sl.ID(), wire.Hello{
		ClientID: s.ClientID, ReplySize: MessageSize, Name: s.Name,
	})
	wire.SignHello(msg, s.Config.Secret, connect, accept)
	s.rq.regrant.Store(device.UnaskedReceives)
	posted = s.Now()
	r, err := sl.Call(p, msg)
	if err != nil {
		return 0, err
	}
	w, err := wire.ParseWelcome(r.Body)
	if err != nil {
		return 0, r.Malformed(err)
	}
	switch {
	case w.Incarnation != s.Incarnation:
		return 0, r.Malformed(errors.New("another incarnation than the one that accepted"))
	case w.Lease < 10*time.Millisecond || w.Beat <= 0 || w.Beat > w.Lease/2:
		return 0, r.Malformed(fmt.Errorf("lease of %v with a beat every %v", w.Lease, w.Beat))
	case w.MaxKey == 0 || w.MaxKey > layout.MaxKeyLen || w.MaxValue > layout.MaxWholeLen:
		return 0, r.Malformed(fmt.Errorf("keys up to %d bytes, values up to %d", w.MaxKey, w.MaxValue))
	case w.RequestSize < 1024 || w.ReplySize > MessageSize:
		return 0, r.Malformed(fmt.Errorf("requests of %d bytes, replies of %d", w.RequestSize, w.ReplySize))
	}
	s.ServerID = string(w.ServerID)
	w.ServerID = nil // it was a view of the message
	s.Welcome = w
	s.Lease.Off = w.Flags&wire.WelcomeLeaseOff != 0
	s.SendOnly = w.Flags&wire.WelcomeSendOnly != 0
	s.Words = w.Flags&wire.WelcomeWords != 0 && !s.SendOnly && !s.Lease.Off
	s.BySend = s.SendOnly || w.Flags&wire.WelcomeWords != 0
	s.Touches.wanted.Store(w.Flags&wire.WelcomeTouches != 0)
	r.Done()
	return posted, nil
}

// RequestSize is the largest message that may be sent, in bytes.
func (s *Session) RequestSize() int { return min(int(s.Welcome.RequestSize), MessageSize) }

// build makes queue pair, message buffers and slots, and posts the receives.
func (s *Session) build() error {
	slots := s.Config.MaxInflight + 1 // and one for Ping
	recvs := slots + device.SpareReceives
	var err error
	// Everything that can be outstanding at once has room in the CQ.
	sends := s.Device.MaxReads + slots + device.SinkCount
	if s.cq, err = s.Device.Dev.CreateCQ(sends + recvs); err != nil {
		return err
	}
	s.QP, err = s.Device.PD.CreateQP(rdma.QPConfig{
		SendCQ: s.cq, RecvCQ: s.cq,
		Cap: rdma.QPCap{MaxSendWR: sends, MaxRecvWR: recvs, MaxSGE: 1},
	})
	if err != nil {
		return err
	}
	if d, ok := s.QP.(rdma.DirectReader); ok {
		s.direct = d
		s.ahead, _ = s.QP.(rdma.DirectPrefetcher)
		if s.World.Now == nil {
			s.Now = base.MonoNanos
		}
	}
	spin := wait.SpinTime(s.cq, s.Config.Wait, s.Config.Spin)
	s.d = wait.NewDispatcher(s.cq, wait.Options{Wait: s.Config.Wait, Spin: spin})
	s.Waits.begin(s.d)
	s.d.OnRecv(s.onRecv)
	if s.Config.Wait != wait.Event && spin > 0 {
		if err := s.Short.prepare(s); err != nil {
			return err
		}
	}
	size := (slots + recvs) * MessageSize
	if s.mm, err = s.Devices.TakeMessages(s.Device, size); err != nil {
		return err
	}
	mem, mr := s.mm.Mem.Bytes()[:size], s.mm.MR

	rq := &s.rq
	rq.turns = turnstile.New(s.Config.MaxInflight, s.Config.MaxWaiting, base.ErrOverloaded)
	rq.credits = turnstile.New(1, s.Config.MaxWaiting, base.ErrOverloaded) // for Hello
	rq.drained = make(chan struct{})
	rq.recvs, rq.recvMR = mem[:recvs*MessageSize], mr
	rq.unread = make([]atomic.Int32, recvs)
	for i := range recvs {
		rq.recvSGE = append(rq.recvSGE, rdma.SGE{MR: mr, Off: uint64(i * MessageSize), Len: MessageSize})
	}
	for i := range recvs {
		rq.recvWR = append(rq.recvWR, rdma.RecvWR{ID: wait.RecvID(uint64(i)), SGL: rq.recvSGE[i : i+1 : i+1]})
	}
	for i := range slots {
		at := (recvs + i) * MessageSize
		sl := &Slot{s: s, index: i, Buf: mem[at : at+MessageSize : at+MessageSize]}
		sl.sgl[0] = rdma.SGE{MR: mr, Off: uint64(at)}
		sl.onSent, sl.onLate = sl.sent, sl.lateReply
		rq.slots = append(rq.slots, sl)
		if i < slots-1 {
			rq.free = append(rq.free, sl)
		}
	}
	s.d.Start()
	for i := range recvs {
		s.repost(i)
	}
	return nil
}

// A Way is how a server's address can be reached.
type Way struct {
	Fabric int    // index in Config.Fabrics
	Device string // as Fabric.Open takes it
	Addr   string // what to connect to
	Why    string // why this device
}

// connectError explains why a connection was not made, and whether it was a
// server that refused it.
func connectError(err error, private []byte) (answered bool, _ error) {
	if !errors.Is(err, rdma.ErrRejected) {
		return false, base.Because(base.ErrUnavailable, err)
	}
	r, perr := wire.ParseReject(wire.Unpad(private, wire.RejectSize))
	if perr != nil {
		return false, base.Because(base.ErrUnavailable, err)
	}
	if r.Status == wire.StatusProtocol && (r.Max < wire.VersionMin || r.Min > wire.VersionMax) {
		r.Status = wire.StatusVersion // version 2 does not know what it has before it
	}
	switch r.Status {
	case wire.StatusVersion:
		return true, fmt.Errorf("%w: the server speaks %d to %d, this client %d to %d",
			base.ErrVersion, r.Min, r.Max, wire.VersionMin, wire.VersionMax)
	case wire.StatusAuth:
		return true, base.ErrAuth // the status says no more
	case wire.StatusClosing:
		return true, base.Because(base.ErrUnavailable, base.Because(base.ErrClosing, r.Status.Err()))
	}
	if r.Status == wire.StatusBusy { // a bound on connections is reached
		return true, base.Because(base.ErrUnavailable, base.Because(base.ErrOverloaded, r.Status.Err()))
	}
	return true, base.Because(base.ErrUnavailable, r.Status.Err())
}
