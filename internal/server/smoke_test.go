package server

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

func TestSmoke(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	if err := p.put("k", "v"); err != nil {
		t.Fatal(err)
	}
	r, err := p.get("k", 1000)
	if err != nil || string(r.Value) != "v" || r.Kind != wire.GetInline {
		t.Fatalf("%+v %v", r, err)
	}
	if err := p.ping(); err != nil {
		t.Fatal(err)
	}
}
