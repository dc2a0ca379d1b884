package verbs_test

import (
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// Soft-RoCE keeps to the rights of queue pairs, and the probe finds that out.
func TestLabRightsProbe(t *testing.T) {
	needDevice(t)
	r := newRig(t, verbs.Options{ProbeRights: true})
	a := r.dev.Attr()
	if a.Caps&(rdma.CapAccessIgnored|rdma.CapNoRevoke) != 0 || !strings.Contains(a.Rights, "refused before and after") {
		t.Errorf("capabilities %#x because %q", a.Caps, a.Rights)
	}
	if a := newRig(t, verbs.Options{}).dev.Attr(); a.Rights != "" {
		t.Errorf("it was probed although nobody asked: %s", a.Rights)
	}
}
