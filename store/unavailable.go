package store

import (
	"errors"

	"github.com/exeunt/exeunt/sqldb"
)

// Unavailable says whether an error of this package means that nothing was done
// because the store is stopping or its database cannot be reached. The same
// call may be made again, here or at another replica.
func Unavailable(err error) bool {
	var unknown *unknownOutcome
	if errors.As(err, &unknown) {
		return false
	}
	return errors.Is(err, errStopped) || errors.Is(err, errClosed) || sqldb.Unreachable(err)
}

// Full says whether an error of this package means that there is no space for the
// database. Nothing was done, whichever step failed.
func Full(err error) bool { return sqldb.Full(err) }

// Corrupt says whether an error of this package means that the database is
// damaged. CorruptAdvice is what its operator has to do.
func Corrupt(err error) bool { return sqldb.Corrupt(err) }

// CorruptAdvice is what to do about a damaged database.
const CorruptAdvice = sqldb.CorruptAdvice

// unknownOutcome is a commit that broke off: it may have taken place. Whoever
// made the write must look, and not just make it again.
type unknownOutcome struct{ cause error }

func (e *unknownOutcome) Error() string {
	return "the outcome of the write is not known: " + e.cause.Error()
}
func (e *unknownOutcome) Unwrap() error { return e.cause }
