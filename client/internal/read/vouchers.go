package read

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What words are to one key (words.go), vouchers are to the keys of one call: before anything else is READ the cells of all their groups are, in one READ
// of each node as a rule, because the cells of a node stand behind each other.
//
//	keys of groups 3, 7 and 9 ──▶ node a   leads 3 and 7    cells of 3, 7, 9
//	                              node b   leads 9          cells of 3, 9
//	                              node c                    cell of 7
//
// The parts of the call, one at each node that leads some of the groups, go by the same vouchers.

// A voucher is what is believed of one group.
type voucher struct {
	group  uint32
	leader *session.Session   // the session that its keys are READ by
	told   *session.GroupInfo // by the leader; nil: its keys cannot be READ now
	others int                // of cells, at nodes that do not lead
	own    bool               // the leader's cell fits
	right  int                // of the others: those that do
}

// holds says, once all cells have been settled, whether what was READ counts.
func (o *voucher) holds() bool { return o.told != nil && o.own && o.right == o.others }

// A cellAt is a cell that is READ at a node.
type cellAt struct {
	voucher  int
	place    layout.Place
	isLeader bool
}

// A nodeCells is the READ of the cells of one node.
type nodeCells struct {
	s      *session.Session
	grant  *session.Grant
	cells  []cellAt
	posted int64          // on the lease clock
	at     []int          // READ i of b begins with cell at[i] of cells
	b      *session.Reads // under way
}

// vouchers are those of one call, or of one try of it. They are pooled.
type vouchers struct {
	of []int // by index of the key: its voucher

	mu    sync.Mutex // guards what follows, and is held while somebody waits for cells
	led   []voucher
	nodes []nodeCells
}

// cellSpan is how many bytes of cells are READ in one piece.
const cellSpan = 4 << 10

var vouchersPool = sync.Pool{New: func() any { return new(vouchers) }}

// vouch READs what it takes to believe what will be READ of the keys that have replicas and of which the indexes are given. It waits for nothing. Whoever
// calls it calls release, when no part of the call is under way.
func vouch(f *route.Router, keys [][]byte, which []int) *vouchers {
	v := vouchersPool.Get().(*vouchers)
	v.of = slices.Grow(v.of[:0], len(keys))[:len(keys)]
	for _, i := range which {
		v.of[i] = v.join(f, keys[i])
	}
	for i := range v.nodes {
		v.nodes[i].post()
	}
	return v
}

// release ends the use of the vouchers.
func (v *vouchers) release() {
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.b != nil { // nobody has waited for it
			n.b.Leave()
		}
		*n = nodeCells{cells: n.cells[:0], at: n.at[:0]}
	}
	clear(v.led)
	v.led, v.nodes = v.led[:0], v.nodes[:0]
	vouchersPool.Put(v)
}

// join is the index of the voucher of a key's group, which is made if there is none.
func (v *vouchers) join(f *route.Router, key []byte) int {
	led := route.LedOf(f, key)
	id := led.Group()
	for i := range v.led {
		if v.led[i].group == id {
			return i
		}
	}
	i := len(v.led)
	v.led = append(v.led, voucher{group: id})
	p, err := f.Owner(key)
	if err != nil {
		return i
	}
	s := p.Current()
	if s == nil || !s.Words || s.Mapped() { // where memory is mapped each key is got by itself
		return i
	}
	told := s.Groups.Of(id)
	if told == nil {
		return i
	}
	if told.Term == 0 || !isVoter(told, s.Node) {
		s.Groups.Seek(id)
		return i
	}
	led.Meet(s, told)
	var at [wire.MaxVoters / 2]struct {
		s    *session.Session
		cell layout.Place
	}
	need, have := len(told.Voters)/2, 0
	for j := 1; j < led.Len() && have < need; j++ {
		if other, cell, ok := witness(led, told, s.Node, j); ok {
			at[have].s, at[have].cell = other, cell
			have++
		}
	}
	if have < need { // its keys are got one by one, which has the leader asked again if that finds no others either
		return i
	}
	o := &v.led[i]
	o.leader, o.told, o.others = s, told, need
	v.add(s, cellAt{i, told.Cell, true})
	for _, a := range at[:need] {
		v.add(a.s, cellAt{i, a.cell, false})
	}
	return i
}

// add has a cell READ at a node.
func (v *vouchers) add(s *session.Session, at cellAt) {
	n := slices.IndexFunc(v.nodes, func(n nodeCells) bool { return n.s == s })
	if n < 0 {
		if n = len(v.nodes); n < cap(v.nodes) {
			v.nodes = v.nodes[:n+1] // with the memory that it had
		} else {
			v.nodes = append(v.nodes, nodeCells{})
		}
		v.nodes[n].s = s
	}
	v.nodes[n].cells = append(v.nodes[n].cells, at)
}

func (n *nodeCells) post() {
	slices.SortFunc(n.cells, func(a, b cellAt) int { return cmp.Compare(a.place, b.place) })
	s := n.s
	n.grant, n.posted = s.Lease.Grant(), s.Now() // before the READ (R17)
	b := s.NewReads(s.View())
	for from := 0; from < len(n.cells); {
		first, to := n.cells[from].place, from+1
		for to < len(n.cells) && n.cells[to].place.Byte()+layout.CellRead-first.Byte() <= cellSpan {
			to++
		}
		if _, err := b.Add(first, int(n.cells[to-1].place.Byte()+layout.CellRead-first.Byte())); err != nil {
			b.Release()
			return
		}
		n.at = append(n.at, from)
		from = to
	}
	reads := b.Len()
	if s.Lease.TakeDue() {
		b.AddBeat()
	}
	if !postNow(b) {
		return
	}
	s.Counts.WordReads.Add(uint64(reads))
	n.b = b
}

// postNow posts READs without waiting for memory or space: calls that hold those of one node and wait for those of another could wait for each other.
// false: nothing was posted, and b is released.
func postNow(b *session.Reads) bool {
	if !b.Reserve() {
		b.Release()
		return false
	}
	p := base.Limit{Ctx: context.Background()} // nothing is waited for
	if err := b.Post(&p); err != nil {
		if err != session.ErrAbandoned {
			b.Release()
		}
		return false
	}
	return true
}

// settle waits for the cells that are under way. Afterwards holds says of each voucher whether what was READ before, or will be, counts.
func (v *vouchers) settle(p *base.Limit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.nodes {
		v.nodes[i].settle(p, v.led)
	}
}

func (n *nodeCells) settle(p *base.Limit, led []voucher) {
	b := n.b
	if b == nil {
		return
	}
	n.b = nil
	came, mine := awaitCells(n.s, b, n.posted, p)
	if came && n.s.Lease.Holds(n.grant, b.Handled()) {
		for r, from := range n.at {
			to := len(n.cells)
			if r+1 < len(n.at) {
				to = n.at[r+1]
			}
			bytes, first := b.Bytes(r), n.cells[from].place.Byte()
			for _, at := range n.cells[from:to] {
				cell, err := layout.ParseCell(bytes[at.place.Byte()-first:])
				judgeCell(&led[at.voucher], cell, err == nil, at.isLeader)
			}
		}
	}
	if mine {
		b.Release()
	}
}

// judgeCell compares a cell with what the leader has told.
func judgeCell(o *voucher, cell layout.Cell, whole, isLeader bool) {
	fits := whole && cell.Word == o.told.Term && (!isLeader || cell.Config == o.told.Config)
	switch {
	case fits && isLeader:
		o.own = true
	case fits:
		o.right++
	case whole && isLeader:
		o.leader.Groups.Forget(o.group, o.told)
	}
}

// manyLed gets keys at a node that is believed to lead their groups: by READs that words vouch for, and what is left one by one.
func manyLed(ctx context.Context, f *route.Router, c *peer.Peer, keys [][]byte, results []base.Result, which []int, patience time.Duration, v *vouchers) {
	if s := c.Current(); s != nil && s.Mapped() {
		getDirectly(ctx, f, c, s, keys, results, which, patience)
		return
	}
	for begin := 0; begin < len(which); begin += groupKeys {
		part := which[begin:min(begin+groupKeys, len(which))]
		p := c.Begin(ctx)
		c.Replica.Hurry(&p, patience)
		s, err := c.Replica.Reach(&p)
		if err == nil && s.Words && v != nil && !s.Lease.IsLapsed() {
			within, cancel := p, context.CancelFunc(nil)
			within.Ctx, cancel = p.Bounded()
			var learned bool
			if part, learned = groupOn(c, v, false, &within, s, keys, results, part); learned { // a newer view: once more
				part, _ = groupOn(c, v, false, &within, s, keys, results, part)
			}
			if len(part) > 0 { // else the node has answered, however late
				err = within.Ctx.Err()
			}
			cancel()
		} else if err == nil && s.Words {
			s.Lease.Use() // gets are being made again: renew
			s.Owner.Wake()
		}
		if err != nil { // it does not answer
			for _, i := range append(slices.Clone(part), which[min(begin+groupKeys, len(which)):]...) {
				results[i].Err = c.Replica.Fail("get", keys[i], "", route.PutOff(err))
			}
			return
		}
		getRest(ctx, f, c, keys, results, part, patience)
	}
}
