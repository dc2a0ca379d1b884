package handle

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// An Asker is whose document it is.
type Asker struct {
	Login *auth.Login
	Peer  string // address, for the log
}

// A Maker makes a document. It runs on the workers that the row of its kind names and may
// wait, but not for long: what takes seconds is begun, and asked for again. The argument is
// the maker's. An error is told to the client: a *base.Refusal as it says, others as for
// every request. ctx ends with the session.
type Maker func(ctx context.Context, by Asker, argument []byte) ([]byte, error)

// Makers make the documents, each kind its own.
type Makers [wire.MaxDocumentKind + 1]Maker

// A documentKind is the row of one kind of document, like that of a request.
type documentKind struct {
	row
	argument uint32 // the most bytes that the argument may have
}

// documentKinds is the table of all kinds of documents. Most are the node's, whatever
// space the session is in.
var documentKinds = [wire.MaxDocumentKind + 1]documentKind{
	wire.DocumentStats: kindOf(mayReadAll, onScans, 0), // the numbers of a space that others use tell about their keys

	// What the cluster is.
	wire.DocumentView:    kindOf(mayRead, onCluster, 0),
	wire.DocumentMap:     kindOf(mayRead, onCluster, 0),
	wire.DocumentPromise: kindOf(mayRead, onCluster, 0),

	// The steps of a change of the shard map: the argument is the map.
	wire.MapPrepare: kindOf(mayAdminister, onAdmin, cluster.MaxMap),
	wire.MapCommit:  kindOf(mayAdminister, onAdmin, cluster.MaxMap),
	wire.MapAbandon: kindOf(mayAdminister, onAdmin, cluster.MaxMap),
	wire.MapFollow:  kindOf(mayAdminister, onAdmin, cluster.MaxMap),

	wire.AdminCluster: kindOf(mayAdminister, onAdmin, wire.MaxClusterQuestion),

	// What an operator asks: the argument is a name.
	wire.AdminRotate:     kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminRevoke:     kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminAllow:      kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminStatus:     kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminGossipKeys: kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminLimits:     kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminTenants:    kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminCheck:      kindOf(mayAdminister, onAdmin, wire.MaxAdminName),
	wire.AdminCopy:       kindOf(mayAdminister, onAdmin, wire.MaxCopyQuestion),
}

// kindOf is the row of a kind whose argument has at most that many bytes.
func kindOf(right right, where place, argument uint32) documentKind {
	run := func(r *op, m wire.Document) { r.document(argument, m) }
	return documentKind{row{right, where, keyless(wire.ParseDocument, run)}, argument}
}

// rowOf returns the row of a request of type t. That of a Document is its kind's.
func rowOf(t wire.Type, body []byte) *row {
	if t == wire.TypeDocument {
		if k := wire.KindOf(body); int(k) < len(documentKinds) && documentKinds[k].run != nil {
			return &documentKinds[k].row
		}
	}
	return &requests[t]
}

// MaxDocuments bounds the documents that a session reads at the same time.
const MaxDocuments = 4

// documents are those that a session reads: each is made once, and kept until the
// client has seen its end, or has begun MaxDocuments others. So what a session keeps
// is bounded by the answers that there are; arguments, of which only an operator may
// send long ones, by there being one under way at a time.
type documents struct {
	mu   sync.Mutex
	last uint32      // serial
	all  []*document // oldest first
}

// A document is one of them. Guarded by documents.mu.
type document struct {
	kind     wire.DocumentKind
	serial   uint32
	total    int    // bytes of the argument
	argument []byte // what has come of it; nil once it is whole
	text     []byte // the answer; nil until it is made
}

// take takes a message in. It returns the document that the message begins, or goes on
// with. With whole the argument is complete and the caller's, which makes the answer. With
// nil the message fits no document, and the text says why.
func (ds *documents) take(m wire.Document) (d *document, argument []byte, whole bool, why string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if m.Serial == 0 {
		d = ds.beginLocked(m.Kind, int(m.Total))
	} else {
		i := slices.IndexFunc(ds.all, func(d *document) bool { return d.serial == m.Serial && d.kind == m.Kind })
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

func (ds *documents) beginLocked(kind wire.DocumentKind, total int) *document {
	if total > 0 {
		ds.all = slices.DeleteFunc(ds.all, func(d *document) bool { return d.argument != nil })
	}
	if len(ds.all) == MaxDocuments {
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
// the argument, which has most bytes at most. It runs on the workers of its kind.
func (r *op) document(most uint32, m wire.Document) {
	if m.Total > most {
		r.Fail(wire.StatusTooLarge, fmt.Sprintf("%v takes an argument of at most %d bytes", m.Kind, most))
		return
	}
	s, ds := r.Session, &r.c.documents
	d, argument, whole, why := ds.take(m)
	switch {
	case d == nil:
		r.Fail(wire.StatusBadRequest, why)
		return
	case whole:
		text, err := r.c.env.Makers[m.Kind](s.Context(), Asker{s.Login, s.Peer}, argument)
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
