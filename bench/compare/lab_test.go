package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// TestTakeLab: a run of the lab replaces the part that it has measured, times or instructions, and
// leaves the other; a shortened one replaces nothing, and neither does a file that is none.
func TestTakeLab(t *testing.T) {
	times := func(name string) []report.Row { return []report.Row{{Name: name, Title: "Times " + name}} }
	counts := func(name string) *report.Counted {
		return &report.Counted{Rows: []report.Row{{Name: name, Title: "Counts " + name}}}
	}
	short := counts("new")
	short.Quick = true
	for _, c := range []struct {
		name      string
		old, new  *report.Result
		rows, cnt string // whose are kept; "": there are none
		says      string
	}{
		{"times replace times", &report.Result{Rounds: 3, Rows: times("old"), Counted: counts("old")}, &report.Result{Rounds: 5, Rows: times("new")}, "new", "old", "written"},
		{"counts replace counts", &report.Result{Rounds: 5, Rows: times("old"), Counted: counts("old")}, &report.Result{Counted: counts("new")}, "old", "new", "written"},
		{"counts are added", &report.Result{Rounds: 5, Rows: times("old")}, &report.Result{Counted: counts("new")}, "old", "new", "written"},
		{"both replace both", &report.Result{Rounds: 3, Rows: times("old"), Counted: counts("old")}, &report.Result{Rounds: 5, Rows: times("new"), Counted: counts("new")}, "new", "new", "written"},
		{"the first counts", nil, &report.Result{Counted: counts("new")}, "", "new", "written"},
		{"the first times", nil, &report.Result{Rounds: 5, Rows: times("new")}, "new", "", "written"},
		{"shortened times", &report.Result{Rounds: 5, Rows: times("old")}, &report.Result{Rounds: 5, Quick: true, Rows: times("new")}, "old", "", "shortened"},
		{"shortened counts", &report.Result{Rounds: 5, Rows: times("old"), Counted: counts("old")}, &report.Result{Counted: short}, "old", "old", "shortened"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			o := options{root: root, lab: filepath.Join(root, "guest.json")}
			write := func(file string, r *report.Result) {
				r.Schema = report.Schema
				if err := report.WriteFile(file, r.WriteJSON); err != nil {
					t.Fatal(err)
				}
			}
			if c.old != nil {
				write(filepath.Join(root, labFile), c.old)
			}
			write(o.lab, c.new)
			var log bytes.Buffer
			if err := takeLab(o, &log); err != nil {
				t.Fatal(err)
			}
			got, err := readLab(filepath.Join(root, labFile))
			if err != nil {
				t.Fatal(err)
			}
			rows, cnt := "", ""
			if len(got.Rows) > 0 {
				rows = got.Rows[0].Name
			}
			if got.Counted != nil {
				cnt = got.Counted.Rows[0].Name
			}
			if rows != c.rows || cnt != c.cnt || rows == "new" && got.Rounds != 5 || !strings.Contains(log.String(), c.says) {
				t.Errorf("times of %q, counts of %q, want %q and %q; it says %q\n%+v", rows, cnt, c.rows, c.cnt, log.String(), got)
			}
		})
	}
}

// TestTakeLabPage: the page follows where there are results to show it with, and a file that cannot
// be read changes neither.
func TestTakeLabPage(t *testing.T) {
	root := t.TempDir()
	o := options{root: root, lab: filepath.Join(root, "guest.json")}
	whole := &report.Result{Schema: report.Schema, Rounds: 1, Rows: []report.Row{}}
	counted := &report.Result{Schema: report.Schema, Counted: &report.Counted{Rows: []report.Row{{Name: "x", Title: "A counted get"}}}}
	for file, r := range map[string]*report.Result{filepath.Join(root, resultsFile): whole, o.lab: counted} {
		if err := report.WriteFile(file, r.WriteJSON); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"-root", root, "-lab", o.lab}, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	var before [2][]byte
	for i, file := range []string{labFile, pageFile} {
		before[i], _ = os.ReadFile(filepath.Join(root, file))
		if !bytes.Contains(before[i], []byte("A counted get")) {
			t.Errorf("%s has no counts:\n%s", file, before[i])
		}
	}
	for _, bad := range []string{"", "{}", `{"schema": 1}`, `{"schema": 1, "rows": [], "counted": {}}`, `{"schema": 1, "counted": {"rows": 3}}`, `{"schema": 2, "rows": [{}]}`} {
		if err := os.WriteFile(o.lab, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := takeLab(o, io.Discard); err == nil || !strings.Contains(err.Error(), "guest.json") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var after [2][]byte
	for i, file := range []string{labFile, pageFile} {
		after[i], _ = os.ReadFile(filepath.Join(root, file))
	}
	if !reflect.DeepEqual(before, after) {
		t.Error("a file that cannot be read has changed the results")
	}
	// Results that cannot be read are not replaced: they may be of another version.
	if err := report.WriteFile(o.lab, counted.WriteJSON); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, labFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := takeLab(o, io.Discard); err == nil {
		t.Error("results that cannot be read were replaced")
	}
	if data, _ := os.ReadFile(filepath.Join(root, labFile)); string(data) != "{" {
		t.Errorf("%s is %q now", labFile, data)
	}
}
