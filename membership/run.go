package membership

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A sending is a message for the reliable channel.
type sending struct {
	to    memberlist.Node
	bytes []byte // shared with other senders, so it must not be changed
}

// senders is how many goroutines send: a peer that does not take its message does
// not stop the others.
const senders = 4

// An outbox is the messages that wait for a sender: at most 64.
type outbox struct {
	queue   chan sending
	dropped *atomic.Uint64
}

func newOutbox(dropped *atomic.Uint64) *outbox { return &outbox{make(chan sending, 64), dropped} }

// post queues a message. It never blocks: one for which there is no room is dropped
// and counted.
func (o *outbox) post(s sending) {
	select {
	case o.queue <- s:
	default:
		o.dropped.Add(1)
	}
}

// send sends messages until ctx ends, each over a connection of its own.
func (o *outbox) send(ctx context.Context, list *memberlist.Memberlist) {
	for {
		select {
		case s := <-o.queue:
			_ = list.SendReliable(&s.to, s.bytes) // the node is not there: the next push/pull mends it
		case <-ctx.Done():
			return
		}
	}
}

// An inbox holds messages from others that wait for run: at most 1024 messages, and
// inboxBytes.
type inbox struct {
	queue chan message
	size  atomic.Int64
	stats *counters
}

func newInbox(stats *counters) *inbox { return &inbox{queue: make(chan message, 1024), stats: stats} }

// A message is what came in from others, a copy.
type message struct {
	bytes []byte
	state bool // of a push/pull

	done chan struct{} // not nil: no message; closed when those before it are handled
}

// inboxBytes bounds what waits for run.
const inboxBytes = 16 << 20

// receive copies a message that came in, unless it is too large or there is no room.
func (i *inbox) receive(b []byte, state bool) {
	most := maxOne
	if state {
		most = maxJoin + maxState
	}
	if len(b) > most {
		i.stats.malformed.Add(1)
		return
	}
	if i.size.Add(int64(len(b))) > inboxBytes {
		i.size.Add(-int64(len(b)))
		i.stats.dropped.Add(1)
		return
	}
	select {
	case i.queue <- message{bytes: bytes.Clone(b), state: state}:
	default:
		i.size.Add(-int64(len(b)))
		i.stats.dropped.Add(1)
	}
}

// viewEvery is the least time between two views, so that a burst of news, as when
// many nodes come, makes one. A view of a thousand members is a quarter of a
// megabyte.
const viewEvery = 20 * time.Millisecond

// run is the goroutine that handles what came in, and makes views.
func (m *Members) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var looked time.Time       // when the members were looked at last
	var later <-chan time.Time // set while another look is due
	look := func() {
		later, looked = nil, time.Now()
		m.publishView()
	}
	for {
		select {
		case <-m.ctx.Done():
			return
		case msg := <-m.in.queue:
			m.in.size.Add(-int64(len(msg.bytes)))
			m.handle(msg)
		case <-m.dirty:
			if wait := viewEvery - time.Since(looked); wait <= 0 {
				look()
			} else if later == nil {
				later = time.After(wait)
			}
		case <-later:
			look()
		case <-tick.C:
			m.publishView() // suspicions and the gone expire
		}
	}
}

// handle acts on one message of another node. Only run calls it.
func (m *Members) handle(msg message) {
	if msg.done != nil {
		close(msg.done)
		return
	}
	if msg.state {
		s, err := parseState(msg.bytes)
		if err != nil {
			m.bad(err)
			return
		}
		m.tables.merge(s)
		m.tables.refute()
		return
	}
	x, err := parseMessage(msg.bytes)
	if err != nil {
		m.bad(err)
		return
	}
	switch x := x.(type) {
	case *cluster.Table:
		m.tables.advert(x, msg.bytes)
		m.tables.refute()
	case goodbye:
		m.bye(x, msg.bytes)
	case prove:
		m.referee.answerProve(x)
	case proof:
		m.referee.takeProof(x)
	case verdict:
		m.referee.takeVerdict(x)
	}
}

func (m *Members) bad(err error) {
	m.stats.malformed.Add(1)
	m.say(event{kind: sayBad, msg: "gossip: a malformed message of a member is ignored", args: []any{"err", err}})
}
