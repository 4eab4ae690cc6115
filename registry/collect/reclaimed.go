package collect

import (
	"context"
	"time"
)

// reclaimedEvery is how often a replica writes how many bytes it removed. They are
// counted after the removal, so a crash can lose the count of this time, and of no more.
const reclaimedEvery = 5 * time.Second

// recordReclaimed adds the bytes that this replica removed to those of the day.
func (c *Collector) recordReclaimed(ctx context.Context) (int, error) {
	n := c.reclaimed.Swap(0)
	if n == 0 {
		return 0, nil
	}
	if err := c.write(ctx, "record the reclaimed bytes", addReclaimed, day(c.options.Now()), n); err != nil {
		c.reclaimed.Add(n)
		return 0, err
	}
	return 1, nil
}

// day numbers the days since 1970, UTC.
func day(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }
