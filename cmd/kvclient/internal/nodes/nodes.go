// Package nodes has the commands of kvclient that concern nodes instead of keys:
// what a node says of itself and counts (stats, cluster status, admin), whether it
// is reached and how fast (ping, wait), whether a cluster or a machine is as it
// should be (cluster check, doctor), and what stands in its memory (inspect).
//
// These commands are the only ones that use the operator's side of the library. A
// node that is away never delays the answers of others: nodes are asked side by
// side, each with a deadline of its own, and the report names those that did not
// answer.
package nodes

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// Commands are the commands of this package, for the root command.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{statsCmd(a), pingCmd(a), waitCmd(a), inspectCmd(a), doctorCmd(a), clusterCmd(a), adminCmd(a)}
}

// nodeFlag adds --node to a command that may be about one node of a cluster. Ids
// are not completed: to know them, the shell would have to dial a server at each
// key press.
func nodeFlag(cmd *cobra.Command, node *string) {
	cmd.Flags().StringVar(node, "node", "", "only this node of the cluster, by its id")
	_ = cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions)
}

// nodePatience bounds a question to one node: a node that is gone must not delay
// the report about the others.
const nodePatience = 3 * time.Second

// maxAtOnce bounds how many nodes are asked at a time: each costs a session and its
// memory, here and there.
const maxAtOnce = 32

// atOnce calls f for 0 to n-1, maxAtOnce of them at a time, and returns when all
// are done. Each call may write to its own place in a slice, so no lock is needed.
func atOnce(n int, f func(int)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, maxAtOnce)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			f(i)
			<-places
		})
	}
	wg.Wait()
}

// nodeName is how tables call a node: a server without a cluster has no id. An id
// comes from another machine, so control characters in it are taken out.
func nodeName(id string) string {
	if id == "" {
		return "server"
	}
	return doctor.OneLine(id)
}

// lineOf is a line for cli.Table.
func lineOf(first string, cells ...string) string {
	return strings.Join(append([]string{first}, cells...), "\t") + "\n"
}

// hex16 writes a number of 64 bits for JSON, whose readers may keep 53 of them; ""
// for none.
func hex16(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", n)
}

// orNoneText writes "none" for an empty text, which could not be seen in a
// sentence.
func orNoneText(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
