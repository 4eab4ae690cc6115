package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/exeunt/exeunt/store/feed"
)

// Version is an object as a change left it.
type Version struct {
	Revision int64
	Type     feed.EventType
	At       int64 // when the change was made, in Unix milliseconds; 0 if not recorded
	Author   string
	Body     []byte // nil if the change removed the object
	Until    int64  // which revision replaced it, if the history has both; 0 in the log
}

// Author says who made a change. All of it is what the client said, except for User.
type Author struct {
	User      string
	Client    string // the User-Agent
	Verb      string // of the request: "patch", "update status"
	RequestID string // the Audit-Id
}

// The longest parts of an author that are kept, in bytes.
const (
	maxUser   = 256
	maxClient = 128
	maxVerb   = 64
)

// String is the form in which the log has an author. The zero Author is empty.
func (a Author) String() string {
	if a == (Author{}) {
		return ""
	}
	return strings.Join([]string{clean(a.User, maxUser), clean(a.Client, maxClient), clean(a.Verb, maxVerb), clean(a.RequestID, maxVerb)}, "\n")
}

// ParseAuthor is the inverse of String.
func ParseAuthor(text string) Author {
	parts := strings.SplitN(text+"\n\n\n", "\n", 4)
	return Author{User: parts[0], Client: parts[1], Verb: parts[2], RequestID: strings.TrimRight(parts[3], "\n")}
}

// clean is a text without what a database or a terminal would not take, up to a length.
func clean(text string, length int) string {
	if len(text) > length {
		text = text[:length]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

const (
	maxVersions = 16        // of a chunk
	maxPlain    = 256 << 10 // bytes of a chunk, uncompressed, after which it gets no more versions
	// maxDecoded bounds what a chunk may decompress to. Objects have at most 3 MiB, and a chunk of large ones
	// has few.
	maxDecoded = 64 << 20
)

// The coders are safe for concurrent use by EncodeAll and DecodeAll.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		return must(e, err)
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxDecoded))
		return must(d, err)
	})
)

func must[T any](coder T, err error) T {
	if err != nil {
		panic(err) // the options are constant
	}
	return coder
}

// encode compresses versions of one object, which differ little.
func encode(versions []Version) []byte {
	var plain []byte
	for i := range versions {
		v := &versions[i]
		plain = binary.AppendUvarint(plain, uint64(v.Revision))
		plain = append(plain, byte(v.Type))
		plain = binary.AppendUvarint(plain, uint64(v.At))
		plain = append(binary.AppendUvarint(plain, uint64(len(v.Author))), v.Author...)
		plain = append(binary.AppendUvarint(plain, uint64(len(v.Body))), v.Body...)
	}
	return encoder().EncodeAll(plain, nil)
}

var errDamaged = errors.New("the row is damaged; restore it from a backup")

// decode is the inverse of encode. The bodies share one array.
func decode(blob []byte) (versions []Version, err error) {
	plain, err := expand(blob, nil)
	if err != nil {
		return nil, err
	}
	err = each(plain, func(v Version, author []byte) {
		v.Author = string(author)
		versions = append(versions, v)
	})
	return versions, err
}

func expand(blob, into []byte) ([]byte, error) {
	plain, err := decoder().DecodeAll(blob, into)
	if err != nil {
		err = fmt.Errorf("decompress: %w", errors.Join(err, errDamaged))
	}
	return plain, err
}

// each visits versions without their authors, which are beside them. It copies nothing.
func each(plain []byte, visit func(v Version, author []byte)) (err error) {
	number := func() int64 {
		n, length := binary.Uvarint(plain)
		if length <= 0 {
			err, plain = errDamaged, nil
			return 0
		}
		plain = plain[length:]
		return int64(n)
	}
	bytes := func() []byte {
		n := number()
		if n < 0 || n > int64(len(plain)) {
			err, plain = errDamaged, nil
			return nil
		}
		part := plain[:n:n]
		plain = plain[n:]
		return part
	}
	for len(plain) > 0 {
		v := Version{Revision: number(), Type: feed.EventType(number()), At: number()}
		author := bytes()
		if v.Body = bytes(); len(v.Body) == 0 {
			v.Body = nil
		}
		visit(v, author)
	}
	return err
}
