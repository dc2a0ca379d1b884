package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestGroupCopy: the leader of a group opens a copy for an operator and reads it page by page, large values in pieces, and whoever cannot be asked or asks
// what is no question is told so.
func TestGroupCopy(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "1")
	id := r.m.Replication.Groups[r.m.Replication.Group[0]].ID
	ask := func(srv *Server, text string) ([]byte, error) {
		p := dial(t, srv, peerOptions{})
		defer p.close()
		return p.document(wire.AdminCopy, []byte(text), len(text))
	}
	var copied wire.CopyAnswer
	var lead *Server
	eventually(t, "a copy is opened", func() bool {
		lead = r.nodes[r.leader(0)]
		text, err := ask(lead, fmt.Sprint("open ", id))
		if err == nil {
			copied, err = wire.ParseCopyAnswer(text, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		return copied.State == wire.CopyOpened
	})
	text, err := ask(lead, fmt.Sprint("read ", copied.ID, " 0 0"))
	if err != nil {
		t.Fatal(err)
	}
	records, more, err := wire.ParseCopyPage(text)
	if err != nil || more || len(records) != 1 || !bytes.Equal(records[0].Key, []byte(keyOf(0))) || string(records[0].Data) != "1" {
		t.Errorf("%v, %v, %v", records, more, err)
	}
	for text, want := range map[string]wire.Status{
		"": wire.StatusBadRequest, "open": wire.StatusBadRequest, "open 0": wire.StatusBadRequest, "open 99999": wire.StatusNotFound, "close 1": wire.StatusNotFound, "read 1 0 0": wire.StatusNotFound,
		fmt.Sprint("read ", copied.ID, " 0 1 6e6f6e65"): wire.StatusBadRequest, fmt.Sprint("read ", copied.ID, " 65535 0"): wire.StatusBadRequest,
	} {
		if _, err := ask(lead, text); wire.StatusOf(err) != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	if _, err := ask(lead, fmt.Sprint("close ", copied.ID)); err != nil {
		t.Error(err)
	}
	if _, err := ask(lead, fmt.Sprint("read ", copied.ID, " 0 0")); wire.StatusOf(err) != wire.StatusNotFound {
		t.Errorf("a closed one: %v", err)
	}
	if _, err := ask(startServer(t, nil), "open 1"); wire.StatusOf(err) != wire.StatusUnsupported {
		t.Errorf("a server that is alone: %v", err)
	}
}

// TestCopyIsOfOneSpace: an administrator who is in a space of his own reads no keys of the node's; one who is in the node's does.
func TestCopyIsOfOneSpace(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "1")
	lead := r.nodes[r.leader(0)]
	if err := lead.SetTenants(t.Context(), []Tenant{
		{Name: "anna", Secret: secret.New(secretOf("anna")), Admin: true, MemoryLimit: 32 << 20}, {Name: "oper", Secret: secret.New(secretOf("oper")), Admin: true, Space: "main"},
	}); err != nil {
		t.Fatal(err)
	}
	question := fmt.Sprint("open ", r.m.Replication.Groups[r.m.Replication.Group[0]].ID)
	for name, want := range map[string]wire.Status{"anna": wire.StatusDenied, "oper": wire.StatusOK} {
		p := dial(t, lead, peerOptions{tenant: name, secret: secretOf(name)})
		if _, err := p.document(wire.AdminCopy, []byte(question), len(question)); err == nil && want != wire.StatusOK || err != nil && wire.StatusOf(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		p.close()
	}
}
