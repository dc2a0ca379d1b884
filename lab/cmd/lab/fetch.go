package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/image"
)

// fetchCommand puts programs of Debian packages where a guest can run them,
// without installing them here.
func fetchCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	to := fs.String("to", "", "directory for bin/ and lib/")
	packages := fs.String("packages", "", "names of packages, separated by commas")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if *to == "" || *packages == "" || fs.NArg() == 0 {
		return 2, errors.New("fetch: -to, -packages and the names of programs are needed")
	}
	root, err := lab.Root()
	if err != nil {
		return 1, err
	}
	used, err := image.Gather(ctx, filepath.Join(root, ".cache", "lab"), *to, strings.Split(*packages, ","), fs.Args())
	if err != nil {
		return 1, err
	}
	for _, p := range used {
		fmt.Printf("%s %s\n", p.Name, p.Version)
	}
	return 0, nil
}
