package cluster

import (
	"bytes"
	"testing"
)

// FuzzParse gives every parser arbitrary bytes. What parses encodes to the
// very same bytes, and is within the bounds that the callers rely on.
func FuzzParse(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []string{"meta", "view", "table", "map"} {
			if again, err := reencode(kind, b); err == nil && !bytes.Equal(again, b) {
				t.Fatalf("%s not canonical:\n%x\n%x", kind, b, again)
			}
		}
		if m, err := ParseMap(b); err == nil {
			for shard := range m.Owner {
				if !m.Owns(m.OwnerOf(uint16(shard)), uint16(shard)) {
					t.Fatalf("shard %d is not its owner's", shard)
				}
			}
			_ = m.String()
		}
		if v, err := ParseView(b); err == nil {
			for i := range v.Members {
				if v.Member(v.Members[i].ID) != &v.Members[i] {
					t.Fatalf("member %q is not found", v.Members[i].ID)
				}
			}
		}
	})
}
