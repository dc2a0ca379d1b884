package wire

// Kinds of questions that nodes ask each other (package transport): the first byte of each. Who reads them draws what follows.
const (
	QuestionPoll    = 1 // of the seat, to every node (package change, poll.go)
	QuestionMap     = 2 // for the newest map (package change, learn.go)
	QuestionAnew    = 3 // whether a node makes the meta group anew (package change, anew.go)
	QuestionLacking = 4 // which replicas have not caught up (package groups, await.go)
)
