package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

const (
	namePrefix = "object-"
	maxObjects = 10_000_000
)

// objectName is the name of the nth object. Names sort like their numbers.
func objectName(n int) string {
	digits := strconv.Itoa(n)
	return namePrefix + "00000000"[:max(0, 8-len(digits))] + digits
}

// textSize is the size of the text from which the objects' data is cut: large
// enough that neighbours in a list do not repeat each other, which would favour
// gzip.
const textSize = 1 << 20

// text is data for ConfigMaps. It consists of random words and numbers, because
// real data compresses neither like noise nor like one repeated line. It is the
// same in every run.
var text = sync.OnceValue(func() string {
	source := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 2000)
	for i := range words {
		word := make([]byte, 3+source.IntN(8))
		for j := range word {
			word[j] = byte('a' + source.IntN(26))
		}
		words[i] = string(word)
	}
	var out strings.Builder
	out.Grow(2*textSize + 64)
	for out.Len() < 2*textSize {
		fmt.Fprintf(&out, "%s.%s=%d ", words[source.IntN(len(words))], words[source.IntN(len(words))], source.IntN(100_000))
	}
	return out.String()
})

// data is the nth object's data, size bytes of it; size is at most textSize.
func data(n, size int) string {
	start := n * 7919 % textSize // a prime, so that starts do not repeat soon
	return text()[start : start+size]
}

const (
	bodyHead  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`
	bodyData  = `","labels":{"app":"bench"}},"data":{"text":"`
	bodyStamp = `","stamp":"`
	bodyTail  = `"}}`
)

// configMap is the nth object as JSON.
func configMap(n, size int) *payload {
	return &payload{pieces: [5]string{bodyHead, objectName(n), bodyData, data(n, size), bodyTail}}
}

// stamped is a ConfigMap whose data also holds a stamp.
func stamped(name, text, mark string) *payload {
	return &payload{pieces: [5]string{bodyHead, name, bodyData, text, bodyStamp + mark + bodyTail}}
}

func collectionPath(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/configmaps"
}
