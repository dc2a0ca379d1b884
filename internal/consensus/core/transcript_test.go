package core

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// TestTranscripts plays the files of testdata: a whole group in one goroutine, each step of it
// by a command. What a replica wants done is printed when it wants it; appends and applies
// are done when a command says so, and messages arrive when a command says so.
//
//	group voters=(1,2,3) [learners=(4)]   replicas that begin with entry 1
//	new 4                                 one that begins with nothing
//	campaign 1 | tick 1 | propose 1 x | transfer 1 to=2
//	change 1 voters=(1,2) [learners=(3)] [expect=1]
//	appended 1 | applied 1                the oldest append, or apply, is done
//	deliver [from=1] [to=2] [type=MsgApp] all messages that fit, in their order
//	drop    the same
//	settle [but=3] [hold=3]               everything, until nothing is left to do: 3 is cut
//	                                      off, or its machine does nothing
//	snapshot from=1 to=2                  the machine of 2 has received the state of 1
//	trim 1 upto=5
//	adopt 2                               it has adopted it, and the log does not say so yet
//	forge 2                               its machine is ahead of its log
//	save 1                                the machine is durable as it is
//	crash 1                               what is not durable is gone
//	state                                 of all
//	shown                                 what each has published, and what leaders have told it of
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{t: t, all: map[int]*actor{}}
			datadriven.RunTest(t, file, s.run)
			for _, a := range s.all {
				a.log.Close(false)
			}
		})
	}
}

// A script is the group of a file.
type script struct {
	t   *testing.T
	all map[int]*actor
	net []*pb.Message
	out strings.Builder
}

// An actor is a replica, and what its owner has to do.
type actor struct {
	s       *script
	id      int
	platter *logtest.Disk
	log     *log.Log
	disk    *Disk
	r       *Replica
	machine consensus.State // published
	saved   consensus.State // durable
	waiting consensus.State // received, and not adopted
	appends []*Append
	applies []*Apply
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	if err := s.do(d); err != nil {
		fmt.Fprintf(&s.out, "error: %v\n", err)
	}
	return s.out.String()
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// who is the actor whom a command names first.
func (s *script) who(d *datadriven.TestData) *actor {
	var id int
	if len(d.CmdArgs) > 0 {
		fmt.Sscan(d.CmdArgs[0].Key, &id)
	}
	a := s.all[id]
	if a == nil {
		s.t.Fatalf("%s: no replica %d", d.Pos, id)
	}
	return a
}

func members(t *testing.T, d *datadriven.TestData, key string) (list []consensus.Member) {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			for _, v := range arg.Vals {
				var id int
				fmt.Sscan(v, &id)
				list = append(list, consensus.Member{ID: consensus.ReplicaID(id), Node: "n" + v})
			}
		}
	}
	return list
}

func number(d *datadriven.TestData, key string, def int) int {
	for _, arg := range d.CmdArgs {
		if arg.Key == key && len(arg.Vals) == 1 {
			fmt.Sscan(arg.Vals[0], &def)
		}
	}
	return def
}

func (s *script) do(d *datadriven.TestData) error {
	switch d.Cmd {
	case "group":
		c := consensus.Config{Index: 1, Voters: members(s.t, d, "voters"), Learners: members(s.t, d, "learners")}
		for _, list := range [2][]consensus.Member{c.Voters, c.Learners} {
			for _, m := range list {
				s.add(int(m.ID), consensus.State{Applied: 1, Term: 1, Config: c})
			}
		}
		return s.takeAll()
	case "new":
		var id int
		fmt.Sscan(d.CmdArgs[0].Key, &id)
		s.add(id, consensus.State{})
		return s.takeAll()
	case "campaign":
		return s.step(s.who(d), s.who(d).r.Campaign)
	case "tick":
		return s.step(s.who(d), s.who(d).r.Tick)
	case "propose":
		a := s.who(d)
		return s.step(a, func() error { return a.r.Propose([]byte(d.CmdArgs[1].Key)) })
	case "transfer":
		a := s.who(d)
		return s.step(a, func() error { return a.r.Transfer(consensus.ReplicaID(number(d, "to", 0))) })
	case "change":
		a := s.who(d)
		from := a.machine.Config
		from.Index = uint64(number(d, "expect", int(from.Index)))
		cc, err := MakeChange(&from, &consensus.Config{Voters: members(s.t, d, "voters"), Learners: members(s.t, d, "learners")}, 7)
		if err != nil {
			return err
		}
		return s.step(a, func() error { _, err := a.r.ProposeChange(cc); return err })
	case "trim":
		a := s.who(d)
		a.take(a.r.Trim(uint64(number(d, "upto", 0))))
		return nil
	case "appended":
		return s.who(d).appended()
	case "applied":
		return s.who(d).applied()
	case "deliver", "drop":
		return s.deliver(d, d.Cmd == "drop")
	case "settle":
		return s.settle(number(d, "but", 0), number(d, "hold", 0))
	case "snapshot":
		from, to := s.all[number(d, "from", 0)], s.all[number(d, "to", 0)]
		to.waiting = from.machine
		m := SnapshotMessage(consensus.ReplicaID(from.id), consensus.ReplicaID(to.id), from.r.Word(), &to.waiting)
		return s.step(to, func() error { return to.r.Step(m) })
	case "adopt":
		a := s.who(d)
		f := a.log.Begin()
		if err := a.disk.Add(f, &Append{Adopting: &Adopting{a.waiting.Applied, a.waiting.Term}}); err != nil {
			return err
		}
		a.machine, a.saved = a.waiting, a.waiting
		return WriteAll(f)
	case "forge": // a machine that is ahead of its log, and nothing says why
		a := s.who(d)
		a.saved.Applied, a.saved.Term = a.saved.Applied+100, a.saved.Term+1
		return nil
	case "save":
		s.who(d).saved = s.who(d).machine
		return nil
	case "crash":
		a := s.who(d)
		a.log.Close(false)
		a.platter, a.machine = a.platter.Crash(0), a.saved
		return a.open()
	case "shown":
		for _, id := range s.ids() {
			s.printf("%d: published %d, leaders have shown %d", id, s.all[id].machine.Applied, s.all[id].r.Shown())
		}
		return nil
	case "state":
		for _, id := range s.ids() {
			a := s.all[id]
			s.printf("%d: word %d, last %d, commit %d, published %d, voters %v learners %v of entry %d, leads %v", id, a.r.Word(), a.r.Last(), a.r.Committed(), a.machine.Applied, ids(a.machine.Config.Voters), ids(a.machine.Config.Learners), a.machine.Config.Index, a.r.Role().Leads)
		}
		return nil
	}
	s.t.Fatalf("%s: unknown command", d.Pos)
	return nil
}

func ids(list []consensus.Member) (out []int) {
	for _, m := range list {
		out = append(out, int(m.ID))
	}
	return out
}

func (s *script) ids() (list []int) {
	for id := range s.all {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// add makes a replica.
func (s *script) add(id int, state consensus.State) {
	s.t.Helper()
	a := &actor{s: s, id: id, platter: logtest.New(logtest.Options{}), machine: state, saved: state}
	s.all[id] = a
	a.openLog()
	if err := Create(a.log, 1, consensus.ReplicaID(id), state); err != nil {
		s.t.Fatal(err)
	}
	if err := a.start(); err != nil {
		s.t.Fatal(err)
	}
}

func (a *actor) openLog() { a.log = openLog(a.s.t, a.platter) }

// open is a start with what is durable.
func (a *actor) open() error {
	a.openLog()
	a.appends, a.applies = nil, nil
	if err := a.start(); err != nil {
		return err
	}
	return a.takeWork()
}

func (a *actor) start() (err error) {
	if err := Reconcile(a.log, 1, consensus.ReplicaID(a.id), a.machine); err != nil {
		return err
	}
	a.disk = NewDisk(a.log, 1, a.machine, 1<<20)
	a.r, err = New(Config{ID: consensus.ReplicaID(a.id), Storage: a.disk, State: a.machine})
	return err
}

// step does something with a replica and tells what it wants done then.
func (s *script) step(a *actor, f func() error) error {
	if err := f(); err != nil {
		return err
	}
	return a.takeWork()
}

func (s *script) takeAll() error {
	for _, id := range s.ids() {
		if err := s.all[id].takeWork(); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) takeWork() error {
	for a.r.HasWork() {
		w, err := a.r.Take()
		if err != nil {
			return err
		}
		a.take(w.Append)
		if w.Apply != nil {
			a.applies = append(a.applies, w.Apply)
			a.s.printf("%d applies %s", a.id, describe(w.Apply.Entries))
		}
		for _, m := range w.Send {
			if m.GetType() == pb.MsgSnap {
				a.s.printf("%d wants to send %d a snapshot", a.id, m.GetTo())
				continue
			}
			a.s.net = append(a.s.net, m)
			a.s.printf("%d sends %s", a.id, message(m))
		}
		if w.Role != nil {
			switch {
			case w.Role.Leads:
				a.s.printf("%d leads in term %d", a.id, w.Role.Term)
			case w.Role.Leader != 0:
				a.s.printf("%d follows %d in term %d", a.id, w.Role.Leader, w.Role.Term)
			}
		}
	}
	return nil
}

func (a *actor) take(w *Append) {
	if w == nil {
		return
	}
	a.disk.Taken(w)
	a.appends = append(a.appends, w)
	text := ""
	if w.Snapshot != nil {
		text += fmt.Sprintf(" a snapshot up to %d", w.Snapshot.GetMetadata().GetIndex())
	}
	if len(w.Entries) > 0 {
		text += " " + describe(w.Entries)
	}
	if w.HasState {
		text += fmt.Sprintf(" term %d vote %d commit %d", w.State.Term, w.State.Vote, w.State.Commit)
	}
	if w.Trim > 0 {
		text += fmt.Sprintf(" trim up to %d", w.Trim)
	}
	if text == "" {
		text = " nothing, in its turn"
	}
	a.s.printf("%d appends%s", a.id, text)
}

// describe lists entries as index/term and data.
func describe(entries []*pb.Entry) string {
	var list []string
	for _, e := range entries {
		text := fmt.Sprintf("%d/%d", e.GetIndex(), e.GetTerm())
		switch {
		case e.GetType() == pb.EntryConfChangeV2:
			c, err := parseChange(e.GetData())
			if err != nil {
				text += " " + err.Error()
				break
			}
			text += fmt.Sprintf(" %v %d", strings.TrimPrefix(c.cc.GetChanges()[0].GetType().String(), "ConfChange"), c.member.ID)
		case len(e.GetData()) > 0:
			text += " " + string(e.GetData())
		}
		list = append(list, text)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func message(m *pb.Message) string {
	text := fmt.Sprintf("%d %v of term %d", m.GetTo(), m.GetType(), m.GetTerm())
	switch m.GetType() {
	case pb.MsgApp:
		text += fmt.Sprintf(" behind %d/%d commit %d", m.GetIndex(), m.GetLogTerm(), m.GetCommit())
		if len(m.GetEntries()) > 0 {
			text += " " + describe(m.GetEntries())
		}
	case pb.MsgAppResp:
		text += fmt.Sprintf(" up to %d", m.GetIndex())
	case pb.MsgHeartbeat:
		text += fmt.Sprintf(" commit %d", m.GetCommit())
		if m.Index != nil {
			text += fmt.Sprintf(" shown %d", m.GetIndex())
		}
	}
	if m.GetReject() {
		text += " refused"
	}
	return text
}

// appended makes the oldest append durable.
func (a *actor) appended() error {
	if len(a.appends) == 0 {
		return fmt.Errorf("replica %d appends nothing", a.id)
	}
	w := a.appends[0]
	a.appends = a.appends[1:]
	if w.Snapshot != nil {
		a.machine, a.saved = a.waiting, a.waiting
		a.disk.Published(a.machine.Applied, a.machine.Term, &a.machine.Config)
	}
	f := a.log.Begin()
	if err := a.disk.Add(f, w); err != nil {
		return err
	}
	if err := WriteAll(f); err != nil {
		return err
	}
	return a.s.step(a, func() error { return a.r.Appended(w) })
}

// applied publishes the oldest apply.
func (a *actor) applied() error {
	if len(a.applies) == 0 {
		return fmt.Errorf("replica %d applies nothing", a.id)
	}
	w := a.applies[0]
	a.applies = a.applies[1:]
	for _, e := range w.Entries {
		a.machine.Applied, a.machine.Term = e.GetIndex(), e.GetTerm()
		if e.GetType() != pb.EntryConfChangeV2 {
			continue
		}
		c, err := Change(&a.machine.Config, e)
		if err != nil {
			return err
		}
		if c.Config == nil {
			a.s.printf("%d: the change of entry %d is void", a.id, e.GetIndex())
			continue
		}
		a.machine.Config = *c.Config
		w.InForce(c)
	}
	a.disk.Published(a.machine.Applied, a.machine.Term, w.Config)
	return a.s.step(a, func() error { return a.r.Applied(w) })
}

// deliver brings messages where they go, or loses them.
func (s *script) deliver(d *datadriven.TestData, lose bool) error {
	from, to := number(d, "from", 0), number(d, "to", 0)
	kind := ""
	for _, arg := range d.CmdArgs {
		if arg.Key == "type" {
			kind = arg.Vals[0]
		}
	}
	var rest, mine []*pb.Message
	for _, m := range s.net {
		if (from == 0 || m.GetFrom() == uint64(from)) && (to == 0 || m.GetTo() == uint64(to)) && (kind == "" || m.GetType().String() == kind) {
			mine = append(mine, m)
		} else {
			rest = append(rest, m)
		}
	}
	s.net = rest
	if len(mine) == 0 {
		return fmt.Errorf("there is no such message")
	}
	for _, m := range mine {
		if lose {
			continue
		}
		if err := s.receive(m); err != nil {
			return err
		}
	}
	return nil
}

// receive steps a message as it comes from the wire.
func (s *script) receive(m *pb.Message) error {
	b, err := AppendMessage(nil, 9, m)
	if err != nil {
		return err
	}
	_, m, _, err = ParseMessage(b)
	if err != nil {
		return err
	}
	a := s.all[int(m.GetTo())]
	if err := a.r.Check(m); err != nil {
		return err
	}
	return s.step(a, func() error { return a.r.Step(m) })
}

// settle does everything until nothing is left, and says nothing of it but who leads.
func (s *script) settle(but, hold int) error {
	before := s.out.String()
	for range 10000 {
		done := true
		for _, id := range s.ids() {
			a := s.all[id]
			if id == but {
				continue
			}
			for len(a.appends) > 0 || len(a.applies) > 0 && id != hold {
				done = false
				if len(a.appends) > 0 {
					if err := a.appended(); err != nil {
						return err
					}
				} else if err := a.applied(); err != nil {
					return err
				}
			}
		}
		net := s.net
		s.net = nil
		for _, m := range net {
			if int(m.GetTo()) == but || int(m.GetFrom()) == but || s.all[int(m.GetTo())] == nil {
				continue
			}
			done = false
			if err := s.receive(m); err != nil {
				return err
			}
		}
		if done {
			said := strings.TrimPrefix(s.out.String(), before)
			s.out.Reset()
			s.out.WriteString(before)
			for line := range strings.Lines(said) {
				if strings.Contains(line, "leads in") || strings.Contains(line, "void") || strings.Contains(line, "snapshot") {
					s.out.WriteString(line)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("it does not end")
}
