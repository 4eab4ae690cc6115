package sqldb

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Copied reads the tables of a copy without a database to load it into.
type Copied struct {
	open    func(name string) (io.ReadCloser, error)
	lite    *sql.DB // of SQLite
	content []byte  // copyIndex of PostgreSQL
}

// OpenCopied opens the files of Copy. dir is for temporary files.
func OpenCopied(engine Engine, dir string, open func(name string) (io.ReadCloser, error)) (*Copied, error) {
	name := copySQLite
	if engine == Postgres {
		name = copyIndex
	}
	content, err := open(name)
	if err != nil {
		return nil, err
	}
	c := &Copied{open: open}
	if engine == Postgres {
		c.content, err = io.ReadAll(content)
		return c, errors.Join(err, content.Close())
	}
	file, err := os.OpenFile(filepath.Join(dir, copySQLite), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = io.Copy(file, content)
		err = errors.Join(err, file.Close())
	}
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, err
	}
	c.lite, err = sql.Open("sqlite", sqliteName(file.Name(), "ro", "deferred", nil))
	return c, err
}

// Close ends the use of the temporary files.
func (c *Copied) Close() error {
	if c.lite == nil {
		return nil
	}
	return c.lite.Close()
}

// Rows calls visit with columns of each row of a table, as texts or bytes; nil is NULL. They are valid until
// visit returns.
func (c *Copied) Rows(ctx context.Context, table string, columns []string, visit func(values [][]byte) error) error {
	if c.lite == nil {
		return c.lines(table, columns, visit)
	}
	values, into := make([][]byte, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = (*sql.RawBytes)(&values[i])
	}
	return eachRow(ctx, c.lite, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		return visit(values)
	}, "SELECT "+strings.Join(columns, ", ")+" FROM "+table)
}

// lines reads a table in the text format of COPY, which has no line longer than the row.
func (c *Copied) lines(table string, columns []string, visit func([][]byte) error) (err error) {
	var index copiedTables
	if err := json.Unmarshal(c.content, &index); err != nil {
		return fmt.Errorf("read %s: %w", copyIndex, err)
	}
	i := slices.IndexFunc(index.Tables, func(t copiedTable) bool { return t.Name == table })
	if i < 0 {
		return fmt.Errorf("the copy has no table %s", table)
	}
	places := make([]int, len(columns))
	for n, column := range columns {
		if places[n] = slices.Index(index.Tables[i].Columns, column); places[n] < 0 {
			return fmt.Errorf("the table %s of the copy has no column %s", table, column)
		}
	}
	content, err := c.open(table + copySuffix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	values := make([][]byte, len(columns))
	for reader := bufio.NewReaderSize(content, 1<<20); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read table %s of the copy: %w", table, err)
		}
		fields := bytes.Split(line[:len(line)-1], []byte{'\t'})
		for n, place := range places {
			if place >= len(fields) {
				return fmt.Errorf("a row of table %s of the copy has %d columns", table, len(fields))
			}
			values[n] = copiedValue(fields[place])
		}
		if err := visit(values); err != nil {
			return err
		}
	}
}

// copyEscapes are those that PostgreSQL writes.
var copyEscapes = strings.NewReplacer(`\b`, "\b", `\f`, "\f", `\n`, "\n", `\r`, "\r", `\t`, "\t", `\v`, "\v", `\\`, `\`)

// copiedValue decodes a value of COPY. Bytes are in hex, after \x.
func copiedValue(field []byte) []byte {
	if string(field) == `\N` {
		return nil
	}
	value := []byte(copyEscapes.Replace(string(field)))
	if digits, ok := bytes.CutPrefix(value, []byte(`\x`)); ok {
		if content, err := hex.DecodeString(string(digits)); err == nil {
			return content
		}
	}
	return value
}
