package wire

import (
	"fmt"
	"iter"
)

// A document is an answer that may be longer than a message: the server makes it
// once, when it has the whole question, and the client reads it in parts.

// A DocumentKind says what a document tells, or what is done so that it can be
// told. The numbers are part of the protocol and are never given a second meaning.
type DocumentKind uint16

const (
	// DocumentStats is the server's counters, a JSON text.
	DocumentStats DocumentKind = 1

	// What a node knows of its cluster. A server that is alone answers
	// StatusUnsupported.
	DocumentView    DocumentKind = 2 // the nodes of the cluster: cluster.AppendView
	DocumentMap     DocumentKind = 3 // the shard map in force: cluster.AppendMap; StatusNoMap if there is none
	DocumentPromise DocumentKind = 4 // the map that this node has promised and not committed; StatusNoMap if none

	// Steps towards a shard map that all nodes of a cluster have. The argument is
	// the map, the answer a MapAnswer. Needs the admin right.
	MapPrepare DocumentKind = 5 // promise, durably, this map and no other
	MapCommit  DocumentKind = 6 // put it in force, durably and for ever
	MapAbandon DocumentKind = 7 // forget the promise

	// MapFollow puts a later map into force, durably: one that the meta group has agreed on. A node that has none yet comes into the cluster by it. Argument and
	// answer as above. Needs the admin right.
	MapFollow DocumentKind = 8

	// What the operator of a node asks of it. The argument says whose or what, the
	// answer is a JSON text. Needs the admin right.
	AdminRotate     DocumentKind = 17 // rkeys: "" or "start" begins a rotation, "status" asks how far it is
	AdminRevoke     DocumentKind = 18 // a tenant, by name: its sessions end, new ones are refused
	AdminAllow      DocumentKind = 19 // takes that back
	AdminStatus     DocumentKind = 20 // the node
	AdminGossipKeys DocumentKind = 21 // list, add, use, remove
	AdminLimits     DocumentKind = 22 // what is in force
	AdminTenants    DocumentKind = 23 // list
	AdminCheck      DocumentKind = 24 // of a group of replicas: "put GROUP", "at GROUP INDEX" (groupcheck.go)
	AdminCluster    DocumentKind = 25 // nodes that come and go: a ClusterQuestion (clustertask.go)
	AdminCopy       DocumentKind = 26 // what a group has at one entry: a CopyQuestion (groupcopy.go)
)

// MaxDocumentKind is the highest kind.
const MaxDocumentKind = AdminCopy

var documentNames = [MaxDocumentKind + 1]string{
	DocumentStats: "stats", DocumentView: "view", DocumentMap: "map", DocumentPromise: "promise",
	MapPrepare: "prepare", MapCommit: "commit", MapAbandon: "abandon", MapFollow: "follow",
	AdminRotate: "rotate-rkeys", AdminRevoke: "revoke", AdminAllow: "allow", AdminStatus: "status",
	AdminGossipKeys: "gossip-keys", AdminLimits: "limits", AdminTenants: "tenants",
	AdminCheck: "check", AdminCluster: "cluster", AdminCopy: "copy",
}

func (k DocumentKind) String() string {
	if k <= MaxDocumentKind && documentNames[k] != "" {
		return documentNames[k]
	}
	return fmt.Sprintf("DocumentKind(%d)", uint16(k))
}

// DocumentKinds returns the kinds that there are, in order.
func DocumentKinds() iter.Seq[DocumentKind] {
	return func(yield func(DocumentKind) bool) {
		for k, name := range documentNames {
			if name != "" && !yield(DocumentKind(k)) {
				return
			}
		}
	}
}

// Operators says whether a kind is one that the operator of a node asks for.
func (k DocumentKind) Operators() bool { return k >= AdminRotate && k <= MaxDocumentKind }

// Changes says whether something changes when a document is made for the argument.
// If so, a client that gets no answer does not know whether it was done. Steps
// towards a shard map do not count: they may be done twice, and the nodes say what
// came of them.
func (k DocumentKind) Changes(argument []byte) bool {
	switch k {
	case AdminRevoke, AdminAllow:
		return true
	case AdminRotate:
		return string(argument) != "status"
	case AdminGossipKeys:
		return string(argument) != "list"
	case AdminCluster:
		q, err := ParseClusterQuestion(argument)
		return err != nil || q.Changes()
	}
	return false
}

// MaxAdminName bounds the argument of the operator's kinds, in bytes.
const MaxAdminName = 1024

// A Document asks for a part of a document. Serial 0 begins one: the message has
// the argument, or as much of it as fits. While the replies say that the argument
// is not whole, further messages have the next parts of it, in order. The reply to
// the last one has the first part of the answer; for each further part a message
// without an argument says From where.
//
//	┌kind┬ 0 ┬argument total┬argument offset┬answer offset┬serial┬argument┐
//	└2   ┴2  ┴4             ┴4              ┴4            ┴4     ┴…       ┘
type Document struct {
	Kind          DocumentKind
	Serial        uint32 // of the document that this message goes on with, from the first reply; 0 begins one
	Total, Offset uint32 // bytes of the whole argument; where this part of it begins. 0 in a message that has none
	From          uint32 // where in the answer to read; 0 in a message that has a part of the argument
	Argument      []byte
}

// documentFixed is what a Document takes besides the argument, with the header.
const documentFixed = HeaderSize + 20

// DocumentRoom returns how many bytes of an argument fit into a request of size
// bytes.
func DocumentRoom(size int) int { return max(0, size-documentFixed) }

// AppendDocument appends a Document.
func AppendDocument(dst []byte, id uint64, m Document) []byte {
	start := len(dst)
	dst = begin(dst, TypeDocument, id)
	dst = le.AppendUint16(dst, uint16(m.Kind))
	dst = append(dst, 0, 0)
	dst = le.AppendUint32(dst, m.Total)
	dst = le.AppendUint32(dst, m.Offset)
	dst = le.AppendUint32(dst, m.From)
	dst = le.AppendUint32(dst, m.Serial)
	return finish(append(dst, m.Argument...), start)
}

// ParseDocument reads the body of a Document. The server decides whether the kind
// exists.
func ParseDocument(body []byte) (Document, error) {
	f := fields{b: body}
	m := Document{Kind: DocumentKind(f.u16())}
	f.zero(2)
	m.Total, m.Offset, m.From, m.Serial = f.u32(), f.u32(), f.u32(), f.u32()
	m.Argument = f.part(m.Total, m.Offset)
	reads := len(m.Argument) == 0 // of the answer; or it begins, without an argument
	switch {
	case reads && (m.Total != 0 || m.Offset != 0),
		!reads && m.From != 0,
		m.Serial == 0 && (m.Offset != 0 || m.From != 0),
		m.Serial != 0 && !reads && m.Offset == 0:
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Document{}, err
	}
	return m, nil
}

// KindOf returns the kind of document that a body asks for, which need not parse; 0
// if it is too short to say.
func KindOf(body []byte) DocumentKind {
	f := fields{b: body}
	return DocumentKind(f.u16())
}

// A DocumentReply is a part of the answer, or says that the argument is not whole.
// Parts with the same serial are of the same document.
//
//	┌total┬offset┬serial┬wants┬ 0 ┬bytes┐
//	└4    ┴4     ┴4     ┴1    ┴3  ┴…    ┘
type DocumentReply struct {
	Total, Offset uint32 // bytes of the whole answer; where this part begins
	Serial        uint32 // what the client names this document by; not 0
	Wants         bool   // there is no answer yet: the next part of the argument is wanted
	Data          []byte
}

// DocumentFixed is what a DocumentReply takes besides its bytes, with the header.
const DocumentFixed = HeaderSize + 16

// AppendDocumentReply appends the reply to a Document.
func AppendDocumentReply(dst []byte, id uint64, m DocumentReply) []byte {
	start := len(dst)
	dst = begin(dst, TypeDocument.Reply(), id)
	dst = le.AppendUint32(dst, m.Total)
	dst = le.AppendUint32(dst, m.Offset)
	dst = le.AppendUint32(dst, m.Serial)
	dst = append(dst, bit(m.Wants), 0, 0, 0)
	return finish(append(dst, m.Data...), start)
}

// ParseDocumentReply reads the body of the reply to a Document.
func ParseDocumentReply(body []byte) (DocumentReply, error) {
	f := fields{b: body}
	m := DocumentReply{Total: f.u32(), Offset: f.u32(), Serial: f.u32(), Wants: f.flag()}
	f.zero(3)
	m.Data = f.part(m.Total, m.Offset)
	if m.Serial == 0 || m.Wants && (m.Total != 0 || m.Offset != 0) {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return DocumentReply{}, err
	}
	return m, nil
}

// part takes the rest as a part of something larger.
func (f *fields) part(total, offset uint32) []byte {
	if f.err != nil {
		return nil
	}
	data := f.rest()
	if uint64(offset)+uint64(len(data)) > uint64(total) {
		f.fail(ErrRange)
	}
	return data
}
