package store

import (
	"errors"

	"github.com/exeunt/exeunt/sqldb"
)

// Unavailable says whether an error of this package means that nothing was done
// because the store is stopping or its database cannot be reached. The client may
// retry, here or at another replica.
func Unavailable(err error) bool {
	var unknown *unknownOutcome
	if errors.As(err, &unknown) {
		return false
	}
	return errors.Is(err, errStopped) || errors.Is(err, errClosed) || sqldb.Unreachable(err)
}

// Full says whether an error of this package means that the database has no disk
// space left. Nothing was done.
func Full(err error) bool { return sqldb.Full(err) }

// Corrupt says whether an error of this package means that the database is
// damaged. CorruptAdvice tells the operator what to do.
func Corrupt(err error) bool { return sqldb.Corrupt(err) }

// CorruptAdvice is what to do about a damaged database.
const CorruptAdvice = sqldb.CorruptAdvice

// unknownOutcome is the error of a commit that may have taken place. The client
// must read the object before it retries.
type unknownOutcome struct{ cause error }

func (e *unknownOutcome) Error() string {
	return "the outcome of the write is not known: " + e.cause.Error()
}
func (e *unknownOutcome) Unwrap() error { return e.cause }
