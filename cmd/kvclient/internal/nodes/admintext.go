package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// Answers of nodes as tables. A node answers with a list of objects, which has a
// line for each, or with one object, which is one line; a list of objects in it, as
// that of the spaces of a rotation, stands in a table of its own, a line for each.
// Columns stand in the order in which the node names them. A newer node may answer
// with fields that this program does not know: they are columns like others.

// adminText is the answers of nodes, by node, for people.
func adminText(nodes map[string]json.RawMessage) string {
	lists, objects := new(adminTable), new(adminTable)
	var inner []string                    // names of lists in objects, in their order
	parts := make(map[string]*adminTable) // by such a name
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if rows, ok := listOf(nodes[id]); ok {
			for _, row := range rows {
				lists.add(id, row)
			}
			continue
		}
		row, ok := objectOf(nodes[id])
		if !ok {
			continue
		}
		// Lists of objects go into tables of their own, and out of the line.
		row = slices.DeleteFunc(row, func(f field) bool {
			rows, ok := listOf(f.value)
			if !ok || len(rows) == 0 {
				return false
			}
			if parts[f.name] == nil {
				inner = append(inner, f.name)
				parts[f.name] = new(adminTable)
			}
			for _, one := range rows {
				parts[f.name].add(id, one)
			}
			return true
		})
		if len(row) > 0 {
			objects.add(id, row)
		}
	}
	// The answer itself comes first, then its parts.
	var tables []string
	for _, t := range []*adminTable{lists, objects} {
		if text := t.text(); text != "" {
			tables = append(tables, text)
		}
	}
	for _, name := range inner {
		tables = append(tables, parts[name].text())
	}
	return strings.Join(tables, "\n")
}

// An adminTable is lines of nodes, each with the columns that it has.
type adminTable struct {
	columns []string
	rows    []adminRow
}

// An adminRow is one line: the columns that the node has named, and no others.
type adminRow struct {
	node  string
	cells map[string]string
}

// add adds a line, and the columns that no line before it has.
func (t *adminTable) add(node string, row []field) {
	cells := make(map[string]string)
	for _, f := range row {
		if !slices.Contains(t.columns, f.name) {
			t.columns = append(t.columns, f.name)
		}
		cells[f.name] = cellOf(f.name, f.value)
	}
	t.rows = append(t.rows, adminRow{node, cells})
}

// text is the table; "" if there is nothing to show.
func (t *adminTable) text() string {
	if len(t.columns) == 0 {
		return ""
	}
	lines := []string{lineOf("node", t.columns...)}
	for _, r := range t.rows {
		var cells []string
		for _, c := range t.columns {
			cell := r.cells[c]
			if cell == "" {
				cell = "-"
			}
			cells = append(cells, cell)
		}
		lines = append(lines, lineOf(nodeName(r.node), cells...))
	}
	return cli.Table(lines)
}

// A field is one name of a JSON object and its value.
type field struct {
	name  string
	value json.RawMessage
}

// listOf reads a JSON list of objects; false means that it is none. Names of fields keep
// their order, which a map would lose.
func listOf(text []byte) (rows [][]field, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return nil, false
	}
	for _, one := range list {
		row, ok := objectOf(one)
		if !ok {
			return nil, false
		}
		rows = append(rows, row)
	}
	return rows, true
}

// objectOf reads a JSON object; false means that it is none.
func objectOf(text []byte) (row []field, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		t, err := dec.Token()
		name, is := t.(string)
		f := field{name: doctor.OneLine(name)}
		if err != nil || !is || dec.Decode(&f.value) != nil {
			return nil, false
		}
		row = append(row, f)
	}
	return row, true
}

// unbounded is where a number stands for "as many as there are": nodes send half
// of the largest number for a bound that is not set.
const unbounded = 1 << 60

// cellOf is a value as it stands in a table.
func cellOf(name string, value json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber() // a float would lose the low digits of counters
	if dec.Decode(&v) != nil {
		return "?"
	}
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return doctor.OneLine(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		switch {
		case err != nil:
			return v.String()
		case n >= unbounded:
			return "-" // no bound is set
		case strings.HasSuffix(name, "bytes") || strings.HasPrefix(name, "bytes"):
			return cli.Bytes(n)
		}
		return v.String()
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, doctor.OneLine(fmt.Sprint(one)))
		}
		return strings.Join(parts, ",")
	// An object that is no list has no better place than its cell.
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, doctor.OneLine(fmt.Sprintf("%s=%v", k, v[k])))
		}
		return strings.Join(parts, ",")
	}
	return "?"
}
