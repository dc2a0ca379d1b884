// Package work shares workers out among those who have something to wait for: requests
// that ask the disk, scans, what the operator asks. A Pool runs jobs; the owners of jobs
// (logins) take turns in it, and the lines of an owner (sessions) do. It knows neither
// requests nor sessions, only Job and Source.
package work
