package review

import (
	"fmt"
	"time"
)

// Backoff says how long a task waits after failures: the wait doubles with each
// failure, up to a cap. Zero fields have defaults.
type Backoff struct {
	Base time.Duration // after the first failure; default 1 second
	Cap  time.Duration // default 5 minutes, or Base when that is longer
}

func (b *Backoff) complete() error {
	if b.Base < 0 || b.Cap < 0 {
		return fmt.Errorf("backoff from %v to %v is negative", b.Base, b.Cap)
	}
	setDefault(&b.Base, time.Second)
	setDefault(&b.Cap, max(5*time.Minute, b.Base))
	if b.Cap < b.Base {
		return fmt.Errorf("backoff starts at %v, above its cap of %v", b.Base, b.Cap)
	}
	return nil
}

// Delay is the wait after a number of failures in a row. random, from 0 to 1,
// subtracts up to half of it (jitter), so that tasks that failed together are not
// retried together. The result never exceeds the cap.
func (b Backoff) Delay(failures int, random float64) time.Duration {
	d := b.Base
	for i := 1; i < failures && d < b.Cap; i++ {
		if d > b.Cap/2 { // doubling could overflow
			d = b.Cap
			break
		}
		d *= 2
	}
	d = min(d, b.Cap)
	return d - time.Duration(min(max(random, 0), 1)*float64(d/2))
}
