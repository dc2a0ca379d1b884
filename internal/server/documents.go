package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A documentKind is the row of one kind of document: a row like that of a request,
// and how the document is made. Documents are the node's, whatever space the session
// is in; the maker looks at the session where that matters.
type documentKind struct {
	row
	argument int // the most bytes that the argument may have
	make     maker
}

// An asker is whose document it is.
type asker struct {
	space *Server // of its session
	login *auth.Login
	peer  string // address, for the log
}

// A maker makes a document. It runs on the workers that the row names and may wait,
// but not for long: what takes seconds is begun, and asked for again. The argument is
// the maker's. An error is told to the client: a *base.Refusal as it says, others as for
// every request. ctx ends with the session.
type maker func(ctx context.Context, by asker, argument []byte) ([]byte, error)

// documentKinds is the table of all kinds of documents.
type documentKinds [wire.MaxDocumentKind + 1]documentKind

// newDocumentKinds makes the table of the node srv. It is no variable, as requests
// is, because what is done for the operator leads back to the table.
func newDocumentKinds(srv *Server) *documentKinds {
	// ofAdmin is what the operator asks: a name, answered with a JSON text.
	ofAdmin := func(do func(by asker, name string) (any, error)) documentKind {
		return documentKind{row{right: mayAdminister, where: onAdmin}, wire.MaxAdminName, func(_ context.Context, by asker, argument []byte) ([]byte, error) {
			answer, err := do(by, string(argument))
			if err != nil {
				return nil, err
			}
			return json.Marshal(answer)
		}}
	}
	ofName := func(do func(name string) (any, error)) documentKind {
		return ofAdmin(func(_ asker, name string) (any, error) { return do(name) })
	}
	ofCluster := func(text func() ([]byte, error)) documentKind {
		return documentKind{row{right: mayRead, where: onCluster}, 0, func(context.Context, asker, []byte) ([]byte, error) { return text() }}
	}
	ofStep := func(step wire.DocumentKind) documentKind {
		return documentKind{row{right: mayAdminister, where: onAdmin}, cluster.MaxMap, func(ctx context.Context, by asker, argument []byte) ([]byte, error) {
			return srv.member.Change(ctx, by.peer, step, argument)
		}}
	}
	kinds := &documentKinds{
		// The numbers of a space that others use tell about their keys.
		wire.DocumentStats: {row{right: mayReadAll, where: onScans}, 0, func(_ context.Context, by asker, _ []byte) ([]byte, error) {
			return statsJSON(by.space, by.login)
		}},
		wire.DocumentView:    ofCluster(srv.member.View),
		wire.DocumentMap:     ofCluster(srv.member.Map),
		wire.DocumentPromise: ofCluster(srv.member.Promise),
		wire.MapPrepare:      ofStep(wire.MapPrepare),
		wire.MapCommit:       ofStep(wire.MapCommit),
		wire.MapAbandon:      ofStep(wire.MapAbandon),
		wire.AdminRotate:     ofAdmin(srv.adminRotate),
		wire.AdminRevoke:     ofName(func(name string) (any, error) { return srv.Revoke(name) }),
		wire.AdminAllow:      ofName(func(name string) (any, error) { return srv.Allow(name) }),
		wire.AdminStatus:     ofName(sources{srv}.status),
		wire.AdminGossipKeys: ofName(srv.member.ChangeKeys),
		wire.AdminLimits:     ofName(func(string) (any, error) { return srv.Limits(), nil }),
		wire.AdminTenants:    ofName(func(string) (any, error) { return srv.Tenants(), nil }),
	}
	for k := range kinds {
		if kind := &kinds[k]; kind.make != nil {
			kind.do = keyless(wire.ParseDocument, func(r *op, m wire.Document) { r.document(kind, m) })
		}
	}
	return kinds
}

// row returns the row of a request of type t. That of a Document is its kind's.
func (kinds *documentKinds) row(t wire.Type, body []byte) *row {
	if t == wire.TypeDocument {
		if k := wire.KindOf(body); int(k) < len(kinds) && kinds[k].run != nil {
			return &kinds[k].row
		}
	}
	return &requests[t]
}

// maxDocuments bounds the documents that a session reads at the same time.
const maxDocuments = 4

// documents are those that a session reads: each is made once, and kept until the
// client has seen its end, or has begun maxDocuments others. So what a session keeps
// is bounded by the answers that there are; arguments, of which only an operator may
// send long ones, by there being one under way at a time.
type documents struct {
	mu   sync.Mutex
	last uint32      // serial
	all  []*document // oldest first
}

// A document is one of them. Guarded by documents.mu.
type document struct {
	kind     *documentKind
	serial   uint32
	total    int    // bytes of the argument
	argument []byte // what has come of it; nil once it is whole
	text     []byte // the answer; nil until it is made
}

// take takes a message in. It returns the document that the message begins, or goes on
// with; with whole the argument, which is the caller's, because nobody has made the
// answer yet. With nil the message fits no document, and the text says why.
func (ds *documents) take(kind *documentKind, m wire.Document) (d *document, argument []byte, whole bool, why string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if m.Serial == 0 {
		d = ds.beginLocked(kind, int(m.Total))
	} else {
		i := slices.IndexFunc(ds.all, func(d *document) bool { return d.serial == m.Serial && d.kind == kind })
		if i < 0 {
			return nil, nil, false, "this session reads no such document: ask anew"
		}
		if d = ds.all[i]; len(m.Argument) == 0 {
			return d, nil, false, ""
		}
	}
	// Only the first part begins at 0, and only it comes while there is none (wire.ParseDocument).
	if int(m.Total) != d.total || int(m.Offset) != len(d.argument) || m.Offset > 0 && d.argument == nil {
		ds.forgetLocked(d)
		return nil, nil, false, "the parts of an argument come in order"
	}
	d.argument = append(d.argument, m.Argument...)
	if len(d.argument) == d.total {
		argument, d.argument = d.argument, nil
		return d, argument, true, ""
	}
	return d, nil, false, ""
}

func (ds *documents) beginLocked(kind *documentKind, total int) *document {
	if total > 0 {
		ds.all = slices.DeleteFunc(ds.all, func(d *document) bool { return d.argument != nil })
	}
	if len(ds.all) == maxDocuments {
		ds.all = slices.Delete(ds.all, 0, 1)
	}
	if ds.last++; ds.last == 0 {
		ds.last++
	}
	d := &document{kind: kind, serial: ds.last, total: total}
	ds.all = append(ds.all, d)
	return d
}

// part returns a part of the answer, at most n bytes from offset from on. false: there
// is no such part. A document whose end was read is forgotten.
func (ds *documents) part(d *document, from, n int) (part []byte, total int, ok bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.text == nil || from > len(d.text) {
		return nil, 0, false
	}
	part = d.text[from:]
	if len(part) <= n {
		ds.forgetLocked(d)
	}
	return part[:min(len(part), n)], len(d.text), true
}

// made notes the answer.
func (ds *documents) made(d *document, text []byte) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.text = text; text == nil {
		d.text = []byte{}
	}
}

func (ds *documents) forget(d *document) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.forgetLocked(d)
}

func (ds *documents) forgetLocked(d *document) {
	ds.all = slices.DeleteFunc(ds.all, func(o *document) bool { return o == d })
}

// document answers a Document: with the first part of the answer once the argument is
// whole, with a further part of an answer that is there, or with the wish for more of
// the argument. It runs on the workers of its kind.
func (r *op) document(kind *documentKind, m wire.Document) {
	if int64(m.Total) > int64(kind.argument) {
		r.Fail(wire.StatusTooLarge, fmt.Sprintf("%v takes an argument of at most %d bytes", m.Kind, kind.argument))
		return
	}
	s, ds := r.Session, &r.c.documents
	d, argument, whole, why := ds.take(kind, m)
	switch {
	case d == nil:
		r.Fail(wire.StatusBadRequest, why)
		return
	case whole:
		text, err := kind.make(s.Context(), asker{r.c.srv, s.Login, s.Peer}, argument)
		if err != nil {
			ds.forget(d)
			r.refuse(err)
			return
		}
		ds.made(d, text)
	case len(m.Argument) > 0:
		r.Answer(wire.DocumentFixed, func(dst []byte) []byte {
			return wire.AppendDocumentReply(dst, r.Header.ID, wire.DocumentReply{Serial: d.serial, Wants: true})
		})
		return
	}
	part, total, ok := ds.part(d, int(m.From), s.ReplySize-wire.DocumentFixed)
	if !ok {
		r.Fail(wire.StatusBadRequest, "the answer has no such part")
		return
	}
	r.Answer(wire.DocumentFixed+len(part), func(dst []byte) []byte {
		return wire.AppendDocumentReply(dst, r.Header.ID, wire.DocumentReply{Total: uint32(total), Offset: m.From, Serial: d.serial, Data: part})
	})
}
