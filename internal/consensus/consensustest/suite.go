package consensustest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Run plays the scenes, up to the first one that fails.
func Run(t *testing.T, engines Maker) {
	for _, s := range []struct {
		name  string
		nodes int
		play  func(*World)
	}{
		{"Elects", 3, elects},
		{"LoneVoter", 1, loneVoter},
		{"AllLosePower", 3, allLosePower},
		{"DiskHangs", 3, diskHangs},
		{"FollowersDiskHangs", 3, followersDiskHangs},
		{"LeaderIsCutOff", 3, leaderIsCutOff},
		{"LeaderIsCutOffAndHangs", 3, leaderIsCutOffAndHangs},
		{"OneWayCut", 3, oneWayCut},
		{"SlowMachine", 3, slowMachine},
		{"CommitArrivesSoon", 3, commitArrivesSoon},
		{"HearsOfAll", 3, hearsOfAll},
		{"HeartbeatsInStep", 3, heartbeatsInStep},
		{"Snapshot", 3, snapshots},
		{"ShortlyAway", 3, shortlyAway},
		{"SnapshotIsCut", 3, snapshotIsCut},
		{"ManySnapshots", 5, manySnapshots},
		{"FailingSnapshots", 3, failingSnapshots},
		{"SlowSender", 5, slowSender},
		{"DeposedSender", 3, deposedSender},
		{"ComeAndGo", 5, comeAndGo},
		{"RefusedChanges", 4, refusedChanges},
		{"Transfer", 3, transfer},
		{"TransferToNobody", 3, transferToNobody},
		{"LogIsFull", 3, logIsFull},
		{"FullDisks", 3, fullDisks},
		{"FullDiskSettles", 3, fullDiskSettles},
		{"NoRoomForVotes", 3, noRoomForVotes},
		{"BadProposals", 3, badProposals},
		{"MachineFails", 3, machineFails},
		{"LogFails", 3, logFails},
		{"LogIsGone", 3, logIsGone},
		{"Hostile", 3, hostile},
		{"Ends", 3, ends},
		{"LyingMembers", 3, lyingMembers},
		{"LongNames", 4, longNames},
		{"LargestEntries", 3, largestEntries},
		{"SlowReads", 3, slowReads},
		{"SlowDisks", 3, slowDisks},
		{"LogFailsElsewhere", 3, logFailsElsewhere},
		{"LongAdoption", 3, longAdoption},
		{"StalledSnapshot", 3, stalledSnapshot},
		{"TrimInApply", 3, trimInApply},
		{"KeptForTheAbsent", 3, keptForTheAbsent},
		{"KeptOverAStart", 3, keptOverAStart},
		{"KeptByFollowers", 3, keptByFollowers},
		{"StartsAndStops", 3, startsAndStops},
		{"ChangeAtTheEnd", 4, changeAtTheEnd},
	} {
		t.Run(s.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			cryptotest.SetGlobalRandom(t, 1)
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, engines, s.nodes)
				defer w.close()
				s.play(w)
			})
		})
		if t.Failed() {
			return
		}
	}
}

// group is the one that most scenes have.
const group = consensus.GroupID(1)

func (w *World) errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
}

// puts acknowledges n writes.
func (w *World) puts(what string, n int) {
	w.t.Helper()
	for i := range n {
		w.put(group, fmt.Sprintf("%s %d", what, i))
	}
}

// others are the nodes without one.
func (w *World) others(name string) (list []*Node) {
	for _, n := range w.names {
		if n != name {
			list = append(list, w.node(n))
		}
	}
	return list
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
