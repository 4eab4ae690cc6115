package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"
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
	maxPlain    = 256 << 10 // bytes of a frame, uncompressed, after which its chunk gets no more versions
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

// A row is a frame of zstd with versions. If it begins with the byte additions, the length of what was added later comes next,
// then that, and then the frame. An addition is a version in a block of s2, its length in front, with the last version of the
// frame as the dictionary: so a version is added without compressing the others again.
const additions = 0 // a frame begins with another byte

var errDamaged = errors.New("the row is damaged; restore it from a backup")

// extend adds versions to a row, or makes one. Versions of one object differ little. When the additions would be larger than
// twice the frame, all versions go into a new frame, and the row is done: another one begins with a small frame.
func extend(row []byte, versions []Version) (extended []byte, done bool, err error) {
	frame, added, err := split(row)
	if err != nil {
		return nil, false, err
	}
	space := scratch.Get().(*[]byte)
	defer scratch.Put(space)
	plain, err := decoder().DecodeAll(frame, (*space)[:0])
	if err != nil {
		return nil, false, errors.Join(err, errDamaged)
	}
	dictionary := dictionaryOf(plain)
	more, fits := slices.Clip(added), dictionary != nil
	var record, block []byte
	for i := 0; i < len(versions) && fits && !done; i++ {
		record = versions[i].append(record[:0])
		block = dictionary.Encode(block[:cap(block)], record)
		more = append(binary.AppendUvarint(more, uint64(len(block))), block...)
		fits = len(record) <= s2.MaxDictSize
		done = len(more) > 2*len(frame)
	}
	if fits && !done {
		row = binary.AppendUvarint(make([]byte, 1, len(more)+len(frame)+4), uint64(len(more)))
		return append(append(row, more...), frame...), false, nil
	}
	if plain, err = unpack(plain, added, dictionary); err != nil {
		return nil, false, err
	}
	for i := range versions {
		plain = versions[i].append(plain)
	}
	*space = plain
	return encoder().EncodeAll(plain, nil), fits, nil
}

func (v *Version) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(v.Revision))
	to = append(to, byte(v.Type))
	to = binary.AppendUvarint(to, uint64(v.At))
	to = append(binary.AppendUvarint(to, uint64(len(v.Author))), v.Author...)
	return append(binary.AppendUvarint(to, uint64(len(v.Body))), v.Body...)
}

// split finds the frame of a row, and what was added to it.
func split(row []byte) (frame, added []byte, err error) {
	if len(row) == 0 || row[0] != additions {
		return row, nil, nil
	}
	added, frame, err = cut(row[1:])
	return frame, added, err
}

// frameSize is how large the frame of a row is when it is decompressed.
func frameSize(row []byte) (int, error) {
	frame, _, err := split(row)
	var header zstd.Header
	if err == nil {
		err = header.Decode(frame)
	}
	return int(header.FrameContentSize), err
}

// cut takes what has its length in front.
func cut(b []byte) (part, rest []byte, err error) {
	n, length := binary.Uvarint(b)
	if length <= 0 || n > uint64(len(b)-length) {
		return nil, nil, errDamaged
	}
	b = b[length:]
	return b[:n], b[n:], nil
}

// dictionaryOf is the last version of a frame, with some bytes in front; nil if that is too large, or there is none.
func dictionaryOf(plain []byte) *s2.Dict {
	length := 0
	_ = each(plain, func(v Version, author []byte) { length = len(v.Body) + len(author) + 32 })
	if length > s2.MaxDictSize {
		return nil
	}
	return s2.MakeDict(plain[max(len(plain)-length, 0):], nil)
}

// unpack appends additions to the versions of their frame.
func unpack(plain, added []byte, dictionary *s2.Dict) ([]byte, error) {
	for len(added) > 0 {
		block, rest, err := cut(added)
		size := 0
		if err == nil {
			size, err = s2.DecodedLen(block)
		}
		if err != nil || size > s2.MaxDictSize || dictionary == nil {
			return nil, errors.Join(err, errDamaged)
		}
		plain = slices.Grow(plain, size)
		if _, err := dictionary.Decode(plain[len(plain):][:0:size], block); err != nil {
			return nil, errors.Join(err, errDamaged)
		}
		plain, added = plain[:len(plain)+size], rest
	}
	return plain, nil
}

// decode returns the versions of a row. The bodies share one array.
func decode(row []byte) (versions []Version, err error) {
	plain, err := expand(row, nil)
	if err != nil {
		return nil, err
	}
	err = each(plain, func(v Version, author []byte) {
		v.Author = string(author)
		versions = append(versions, v)
	})
	return versions, err
}

func expand(row, into []byte) ([]byte, error) {
	frame, added, err := split(row)
	if err == nil {
		into, err = decoder().DecodeAll(frame, into)
	}
	if err == nil && len(added) > 0 {
		into, err = unpack(into, added, dictionaryOf(into))
	}
	if err != nil {
		err = fmt.Errorf("decompress: %w", errors.Join(err, errDamaged))
	}
	return into, err
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
