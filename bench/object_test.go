package bench

import (
	"encoding/json"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

func readAll(p *payload) (string, error) {
	all, err := io.ReadAll(p.reader())
	return string(all), err
}

func TestPayload(t *testing.T) {
	p := configMap(3, 1000)
	whole, err := readAll(p)
	if err != nil || int64(len(whole)) != p.size() {
		t.Fatalf("read %d bytes of %d: %v", len(whole), p.size(), err)
	}
	// The reader must also work with small buffers.
	if err := iotest.TestReader(p.reader(), []byte(whole)); err != nil {
		t.Error(err)
	}
	if again, _ := readAll(p); again != whole {
		t.Error("a second reader returns other bytes")
	}
}

func TestObjectsAreValidAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range []int{0, 1, 2, 9999, maxObjects - 1} {
		body, _ := readAll(configMap(n, 1<<20))
		var object struct {
			Metadata struct{ Name string }
			Data     map[string]string
		}
		if err := json.Unmarshal([]byte(body), &object); err != nil {
			t.Fatalf("object %d: %v", n, err)
		}
		if object.Metadata.Name != objectName(n) || len(object.Data["text"]) != 1<<20 {
			t.Errorf("object %d: name %q, %d bytes", n, object.Metadata.Name, len(object.Data["text"]))
		}
		seen[object.Data["text"]] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d different objects of 5", len(seen))
	}
}

func TestNamesSortAsNumbers(t *testing.T) {
	names := []string{objectName(0), objectName(9), objectName(10), objectName(12345), objectName(maxObjects - 1)}
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %q", names)
	}
}
