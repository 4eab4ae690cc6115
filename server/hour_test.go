package server

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestLastHour: the server keeps a sample for each of the last 60 minutes, and none of a minute in which the database did not
// answer; what was removed in that minute is in the next sample.
func TestLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h, begin := &hour{}, time.Now()
		removed := int64(1000) // since the feed began
		go h.run(ctx, func() int64 { return removed }, func(context.Context) *Status {
			minute := int(time.Since(begin).Minutes())
			if minute == 80 {
				return &Status{}
			}
			return &Status{Database: Database{Bytes: 1}, Disk: Disk{Bytes: 10, Free: int64(minute)}, Queues: []Queue{{Depth: 2, Overdue: 1}, {Depth: 3}}}
		})
		synctest.Wait()
		for range 90 {
			removed += 7
			time.Sleep(sampleEvery)
			synctest.Wait()
		}
		stop()
		var got struct{ Samples []Sample }
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest("GET", HourPath, nil))
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || len(got.Samples) != mostSamples {
			t.Fatalf("%d samples, %v: %s", len(got.Samples), err, answer.Body)
		}
		all := int64(0)
		for i, s := range got.Samples {
			all += s.Removed
			if s.Queued != 5 || s.Overdue != 1 || s.Disk != 10 || i > 0 && !s.At.After(got.Samples[i-1].At) {
				t.Errorf("sample %d is %+v", i, s)
			}
		}
		if last := got.Samples[mostSamples-1]; all != 61*7 || last.Free != 90 {
			t.Errorf("%d were removed in 61 minutes, and the last sample is %+v", all, last)
		}
	})
}
