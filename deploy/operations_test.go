package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// codeOf is the text of the programs below a directory of the repository, without tests.
func codeOf(t *testing.T, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestOperations holds docs/operations.md to the programs: each alert has its row, with its severity and the metrics that it is about, and no other has one; each metric that it names, each command, each
// setting and each line of the log is in the code. The block that it has is pasted by TestPaste (test/e2e).
func TestOperations(t *testing.T) {
	page := read(t, "../docs/operations.md")
	server, clients := codeOf(t, "internal", "store", "membership", "cmd/kvserver"), codeOf(t, "cmd/kvclient", "client")
	metric := regexp.MustCompile(`\brdmakv_[a-z0-9_]+`)
	for _, fault := range alarms(rules(t), page, metric) {
		t.Error(fault)
	}
	names := metric.FindAllString(page, -1)
	for _, name := range names {
		short, of, code := strings.TrimPrefix(name, "rdmakv_"), "nodes", server
		if c, ok := strings.CutPrefix(name, "rdmakv_client_"); ok {
			short, of, code = c, "clients", clients
		}
		// The name as a whole, or behind a prefix that its collector has: "group_" + "leaderless".
		found := strings.Contains(code, `"`+short+`"`)
		for i := range short {
			found = found || short[i] == '_' && strings.Contains(code, `"`+short[i+1:]+`"`) && strings.Contains(code, `"`+short[:i+1])
		}
		if !found {
			t.Errorf("%s have no metric %s", of, name)
		}
	}
	commands := regexp.MustCompile("`(kvclient|kvserver) ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?[^`]*`").FindAllStringSubmatch(page, -1)
	for _, c := range commands {
		code := codeOf(t, "cmd/"+c[1])
		for _, word := range c[2:] {
			if word != "" && !strings.Contains(code, `"`+word+`"`) && !strings.Contains(code, `"`+word+` `) {
				t.Errorf("%s: %s has no command %q", c[0], c[1], word)
			}
		}
		for _, flag := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(c[0], -1) {
			if !strings.Contains(code, `"`+flag[1]+`"`) && !strings.Contains(codeOf(t, "internal/config"), `"`+strings.ReplaceAll(flag[1], "-", "_")) && flag[1] != "config" {
				t.Errorf("%s: %s has no flag --%s", c[0], c[1], flag[1])
			}
		}
	}
	lines := linesOf(page)
	for _, line := range lines {
		if !strings.Contains(server, line) && !strings.Contains(codeOf(t, "cmd/kvclient"), line) {
			t.Errorf("no program says %q", line)
		}
	}
	if len(names) < 30 || len(commands) < 30 || len(lines) < 15 {
		t.Errorf("%d metrics, %d commands, %d lines of logs were looked at", len(names), len(commands), len(lines))
	}
}

// alarms compares the rows of the table of alarms with the alerts.
func alarms(all []alert, page string, metric *regexp.Regexp) (faults []string) {
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (Rdmakv\w+), (critical|warning) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$`).FindAllStringSubmatch(page, -1) {
		if rows[m[1]] != nil {
			faults = append(faults, m[1]+" has two rows")
		}
		rows[m[1]] = m[2:]
	}
	for _, a := range all {
		row := rows[a.Alert]
		if row == nil {
			faults = append(faults, a.Alert+" has no row")
			continue
		}
		delete(rows, a.Alert)
		want, got := metric.FindAllString(a.Expr, -1), metric.FindAllString(row[1], -1)
		slices.Sort(want)
		slices.Sort(got)
		// Those that say only how many there are to compare with need no mention.
		for _, name := range got {
			if !slices.Contains(want, name) {
				faults = append(faults, a.Alert+" is not about "+name)
			}
		}
		if row[0] != a.Labels["severity"] || len(got) == 0 && !strings.Contains(a.Expr, "up{") || len(row[3]) < 20 {
			faults = append(faults, a.Alert+": "+strings.Join(row, " | "))
		}
	}
	for name := range rows {
		faults = append(faults, "there is no alert "+name)
	}
	return faults
}

// linesOf are the lines of logs and errors on the page: the first cells of tables that have such, and what stands behind "Log:".
func linesOf(page string) (lines []string) {
	inTable := false
	for row := range strings.Lines(page) {
		row = strings.TrimSpace(row)
		switch {
		case strings.HasPrefix(row, "| line |"), strings.HasPrefix(row, "| its line |"):
			inTable = true
		case !strings.HasPrefix(row, "|"):
			inTable = false
		case inTable:
			if m := regexp.MustCompile("^\\| `([^`]+)`").FindStringSubmatch(row); m != nil {
				lines = append(lines, m[1])
			}
		}
		for _, m := range regexp.MustCompile("[Ll]og: `([^`]+)`").FindAllStringSubmatch(row, -1) {
			lines = append(lines, m[1])
		}
	}
	return lines
}

// TestOperationsAreHeld: the test above finds an alert without a row, a row without an alert, a metric that the alert is not about, and another severity.
func TestOperationsAreHeld(t *testing.T) {
	metric := regexp.MustCompile(`\brdmakv_[a-z0-9_]+`)
	a := alert{Alert: "RdmakvThing", Expr: "rdmakv_thing > 0", Labels: map[string]string{"severity": "warning"}}
	const good = "| RdmakvThing, warning | `rdmakv_thing` | it is | do something about this thing |\n"
	for page, want := range map[string]string{
		good:        "",
		good + good: "has two rows",
		"":          "RdmakvThing has no row",
		strings.Replace(good, "warning", "critical", 1):                 "critical",
		strings.Replace(good, "`rdmakv_thing`", "`rdmakv_other`", 1):    "not about rdmakv_other",
		strings.Replace(good, "do something about this thing", "do", 1): "| do",
		good + strings.ReplaceAll(good, "RdmakvThing", "RdmakvOther"):   "no alert RdmakvOther",
	} {
		faults := strings.Join(alarms([]alert{a}, page, metric), "; ")
		if (want == "") != (faults == "") || !strings.Contains(faults, want) {
			t.Errorf("%q: %q, want %q", page, faults, want)
		}
	}
	got := linesOf("| line | what |\n|---|---|\n| `one line` | x `no` |\n\n| else |\n|---|\n| `not this` |\nLog: `another`. log: `third`\n")
	if !slices.Equal(got, []string{"one line", "another", "third"}) {
		t.Errorf("%q", got)
	}
}
