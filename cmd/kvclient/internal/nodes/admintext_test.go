package nodes

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestAdminText: a list is a table in the order of the node's fields, with what
// other nodes have beside it, and harmless.
func TestAdminText(t *testing.T) {
	got := adminText(map[string]json.RawMessage{
		"b": json.RawMessage(`[{"name":"x\u001b[31m","max_bytes":1048576,"rights":["read","write"],"revoked":true}]`),
		"a": json.RawMessage(`[{"name":"y","max_bytes":4611686018427387904,"rights":[],"revoked":false,"new":{"k":1}}]`),
		"c": json.RawMessage(`{"running":false,"left":3,"spaces":[{"space":"","began":"12:00"},{"space":"s1","began":""}]}`),
		"d": json.RawMessage(`{"running":true,"left":4,"spaces":[{"space":"","began":"12:01"}]}`),
	})
	want := []string{
		"node name max_bytes rights revoked new",
		"a y - - no k=1",
		"b x?[31m 1.0 MiB read,write yes -",
		"",
		"node running left",
		"c no 3",
		"d yes 4",
		"",
		"node space began",
		"c - 12:00",
		"c s1 -",
		"d - 12:01",
	}
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
