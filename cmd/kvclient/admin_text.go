package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/doctor"
)

// Answers of nodes as tables. A node answers with a list of objects, which has a
// line for each, or with one object, which has a line for each of its fields.
// Columns stand in the order in which the node names them. A newer node may answer
// with fields that this program does not know: they are columns like others.

// adminText is the answers of nodes, by node, for people.
func adminText(nodes map[string]json.RawMessage) string {
	var lists, objects []string
	var columns []string
	rows := make(map[string][]map[string]string)
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		list, ok := listOf(nodes[id])
		if !ok {
			objects = append(objects, id)
			continue
		}
		lists = append(lists, id)
		for _, row := range list {
			cells := make(map[string]string)
			for _, f := range row {
				if !slices.Contains(columns, f.name) {
					columns = append(columns, f.name)
				}
				cells[f.name] = cellOf(f.name, f.value)
			}
			rows[id] = append(rows[id], cells)
		}
	}
	var out []string
	if len(columns) > 0 {
		out = append(out, lineOf("node", columns...))
	}
	for _, id := range lists {
		for _, row := range rows[id] {
			var cells []string
			for _, c := range columns {
				cell := row[c]
				if cell == "" {
					cell = "-"
				}
				cells = append(cells, cell)
			}
			out = append(out, lineOf(nodeName(id), cells...))
		}
	}
	text := table(out)
	out = nil
	for _, id := range objects {
		var tree any
		dec := json.NewDecoder(bytes.NewReader(nodes[id]))
		dec.UseNumber()
		if dec.Decode(&tree) != nil {
			continue
		}
		for line := range strings.Lines(flatten(tree)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			out = append(out, lineOf(nodeName(id), name, doctor.OneLine(value)))
		}
	}
	return text + table(out)
}

func nodeName(id string) string {
	if id == "" {
		return "server"
	}
	return doctor.OneLine(id)
}

func lineOf(first string, cells ...string) string {
	return strings.Join(append([]string{first}, cells...), "\t") + "\n"
}

// A field is one name of a JSON object and its value.
type field struct {
	name  string
	value json.RawMessage
}

// listOf reads a JSON list of objects; false if it is none. Names of fields keep
// their order, which a map would lose.
func listOf(text []byte) (rows [][]field, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return nil, false
	}
	for _, one := range list {
		dec := json.NewDecoder(bytes.NewReader(one))
		if t, err := dec.Token(); err != nil || t != json.Delim('{') {
			return nil, false
		}
		var row []field
		for dec.More() {
			t, err := dec.Token()
			name, is := t.(string)
			f := field{name: doctor.OneLine(name)}
			if err != nil || !is || dec.Decode(&f.value) != nil {
				return nil, false
			}
			row = append(row, f)
		}
		rows = append(rows, row)
	}
	return rows, true
}

// unbounded is where a number stands for "as many as there are": nodes send half
// of the largest number for a bound that is not set.
const unbounded = 1 << 60

// cellOf is a value as it stands in a table.
func cellOf(name string, value json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
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
			return "-"
		case strings.HasSuffix(name, "bytes") || strings.HasPrefix(name, "bytes"):
			return byteCount(n)
		}
		return v.String()
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, doctor.OneLine(fmt.Sprint(one)))
		}
		return strings.Join(parts, ",")
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, doctor.OneLine(fmt.Sprintf("%s=%v", k, v[k])))
		}
		return strings.Join(parts, ",")
	}
	return "?"
}
