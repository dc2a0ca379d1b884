package membership

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

func seeds() [][]byte {
	t := regions(3)
	t.Node, t.Version = "a", 4
	return [][]byte{
		cluster.AppendTable([]byte{byte(kindAdvert)}, t),
		{1, 2, 3}, {3}, {4, 4}, // of earlier builds
		goodbye{"a", 7}.append(nil),
		(&state{from: "a", digests: []digest{{1, 2, 3, 4}, {5, 6, 7, 8}}, tables: [][]byte{cluster.AppendTable(nil, t)}}).append(nil),
		(&state{from: "b"}).append(nil),
		(&state{from: "b", lives: []*statement{{Life: Life{Epoch: 3, Began: 4, Incarnation: 5}, node: "b", addr: "10.0.0.1:7946"}}}).append(nil),
		prove{node: "b", from: "10.0.0.1:7946"}.append(nil),
		proof{statement: statement{node: "b", addr: "10.0.0.1:7946"}}.append(nil),
		verdict{older: statement{node: "b"}, younger: statement{node: "b", Life: Life{Began: 1}}}.append(nil),
	}
}

// FuzzMessages gives both parsers arbitrary bytes: what parses encodes to the
// very same bytes.
func FuzzMessages(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := parseMessage(b); err == nil {
			var again []byte
			switch x := x.(type) {
			case *cluster.Table:
				again = cluster.AppendTable([]byte{byte(kindAdvert)}, x)
			case former:
				again = b
			case goodbye:
				again = x.append(nil)
			case prove:
				again = x.append(nil)
			case proof:
				again = x.append(nil)
			case verdict:
				again = x.append(nil)
			}
			if !bytes.Equal(again, b) {
				t.Fatalf("not canonical:\n%x\n%x", b, again)
			}
		}
		if s, err := parseState(b); err == nil {
			if again := s.append(nil); !bytes.Equal(again, b) {
				t.Fatalf("not canonical:\n%x\n%x", b, again)
			}
		}
	})
}

// FuzzHear gives the log of the library arbitrary lines.
func FuzzHear(f *testing.F) {
	f.Add("[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=1.2.3.4:5")
	f.Add("[INFO] memberlist: Suspect b has failed, no acks received")
	f.Add("[WARN] memberlist: Refuting an alive message for 'a' (1.2.3.4:5) meta:([1] VS [2]), vsn:([1] VS [2])")
	f.Fuzz(func(t *testing.T, line string) {
		m := bare()
		m.peers["b"] = &peer{Member: cluster.Member{ID: "b", State: cluster.Alive}}
		if n, err := (libraryLog{m}).Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	})
}

// FuzzInbox lets the handlers of messages chew on arbitrary sequences of them:
// nothing panics, and no bound is passed.
func FuzzInbox(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		m := bare()
		for _, id := range []string{"a", "b", "c"} {
			m.peers[id] = &peer{Member: cluster.Member{ID: id, Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7, TableVersion: 3}}
		}
		own := regions(2)
		own.Incarnation = 7
		if err := m.Publish(own); err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{first, second, first} {
			m.handle(message{bytes: bytes.Clone(b)})
			m.handle(message{bytes: bytes.Clone(b), state: true})
			m.joiner.mendNow(time.Now())
			m.publishView()
		}
		if err := m.View().Check(); err != nil {
			t.Fatal(err)
		}
		if m.queue.NumQueued() > maxQueue {
			t.Fatalf("%d broadcasts wait", m.queue.NumQueued())
		}
	})
}
