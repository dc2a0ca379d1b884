package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Where results go, below the root.
const (
	resultsFile = "bench/results/latest.json"
	labFile     = "bench/results/lab.json" // of make lab-bench; may be missing
	pageFile    = "docs/benchmarks.md"
	pictures    = "docs" // benchmarks-*.svg
	readmeFile  = "README.md"
)

// partDir is where the results of a part of the rows go, below the directory of
// the stores: the page is of whole runs.
const partDir = "last"

// write writes the results: of a whole run to the repository, else beside the
// stores.
func write(o options, res *report.Result, log io.Writer) error {
	if o.dry {
		return res.WriteJSON(log)
	}
	root := o.root
	if o.rows != "" || o.quick {
		root = filepath.Join(o.dir, partDir)
	}
	if err := report.WriteFile(filepath.Join(root, resultsFile), func(w io.Writer) error { return res.WriteJSON(w) }); err != nil {
		return err
	}
	if err := writePage(root, res); err != nil {
		return err
	}
	fmt.Fprintf(log, "\nwrote %s, %s, pictures and, if there is one, the table of %s below %s\n", resultsFile, pageFile, readmeFile, root)
	return nil
}

// rewrite makes the page anew from results that stand there.
func rewrite(o options) error {
	res, err := readResults(filepath.Join(o.root, resultsFile))
	if err != nil {
		return err
	}
	return writePage(o.root, res)
}

func readResults(path string) (*report.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res, err := report.ReadJSON(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	res.Judge()
	return res, nil
}

// writePage writes the page and its pictures; what the lab has measured stands at
// its end.
func writePage(root string, res *report.Result) error {
	lab, err := readResults(filepath.Join(root, labFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	pics, err := report.Pictures(res)
	if err == nil && lab != nil {
		var more map[string][]byte
		more, err = report.Pictures(lab)
		maps.Copy(pics, more)
	}
	if err != nil {
		return err
	}
	for name, svg := range pics {
		if err := report.WriteFile(filepath.Join(root, pictures, name), func(w io.Writer) error {
			_, err := w.Write(svg)
			return err
		}); err != nil {
			return err
		}
	}
	if err := report.WriteFile(filepath.Join(root, pageFile), func(w io.Writer) error { return report.Page(w, res, lab) }); err != nil {
		return err
	}
	return writeReadme(root, res)
}

// writeReadme writes the table in README, where there is one: results of a part of the rows go to a
// directory without.
func writeReadme(root string, res *report.Result) error {
	path := filepath.Join(root, readmeFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !res.Headlines() {
		return nil
	}
	if err != nil {
		return err
	}
	if text, err = report.Readme(text, res); err != nil {
		return err
	}
	return report.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// versions asks the programs for their versions. If one does not answer, the page
// says so: its contenders will say why.
func versions(ctx context.Context, o options) (list []report.Version) {
	ask := func(name, path string, args ...string) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, path, args...).Output()
		text, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			text = "missing: " + err.Error()
		}
		list = append(list, report.Version{Name: name, Text: text})
	}
	ask("rdmakv", filepath.Join(o.bin, "kvserver"), "version")
	if info, ok := debug.ReadBuildInfo(); ok {
		list = append(list, report.Version{Name: "Go", Text: info.GoVersion})
		for _, d := range info.Deps {
			if strings.HasPrefix(d.Path, "github.com/cockroachdb/pebble/") {
				list = append(list, report.Version{Name: "Pebble", Text: d.Version})
			}
		}
	}
	ask("Redis", "redis-server", "--version")
	ask("redis-benchmark", "redis-benchmark", "--version")
	ask("memcached", "memcached", "--version")
	ask("etcd", "etcd", "--version")
	ask("C compiler", "gcc", "--version")
	return append(list, report.Version{Name: "LMDB", Text: lmdbVersion(ctx)})
}
