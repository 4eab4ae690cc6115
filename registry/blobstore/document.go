package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/exeunt/exeunt/internal/durable"
)

// Documents are small files beside the bytes, with names that their user chooses:
// letters, digits, dots and dashes. Backups keep their manifests there.
type Documents interface {
	// PutDocument writes a document, or replaces it. It appears whole, and survives
	// a power cut.
	PutDocument(ctx context.Context, name string, content []byte) error
	// Document reads a document. ErrNotFound.
	Document(ctx context.Context, name string) ([]byte, error)
	// ListDocuments lists the documents, by name, with the time of their last write on
	// the clock of the store.
	ListDocuments(ctx context.Context) ([]Document, error)
	// RemoveDocument removes a document. It is idempotent.
	RemoveDocument(ctx context.Context, name string) error
}

// Document is an entry of ListDocuments.
type Document struct {
	Name    string
	Written time.Time
}

var (
	_ Documents = (*Dir)(nil)
	_ Documents = (*S3)(nil)
)

const (
	// documentFolder is the folder of the documents, or the prefix of their keys.
	documentFolder = ".documents"
	// unfinished begins the names of files that are being written. No document has
	// such a name.
	unfinished = "~"
)

func checkDocument(name string) error {
	ok := name != "" && name[0] != '.'
	for _, c := range name {
		ok = ok && (c == '.' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("document %q: %w", name, ErrPath)
	}
	return nil
}

// PutDocument is Documents.PutDocument.
func (d *Dir) PutDocument(_ context.Context, name string, content []byte) error {
	err := checkDocument(name)
	if err == nil {
		err = d.putDocument(name, content)
	}
	return wrap("write document", full(err))
}

func (d *Dir) putDocument(name string, content []byte) error {
	folder := filepath.Join(d.root, documentFolder)
	made, err := makeFolder(folder)
	if err != nil {
		return err
	}
	if made {
		if err := durable.SyncFolder(d.root); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(folder, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // no effect after the rename
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(folder, name)); err != nil {
		return err
	}
	return durable.SyncFolder(folder)
}

// Document is Documents.Document.
func (d *Dir) Document(_ context.Context, name string) ([]byte, error) {
	err := checkDocument(name)
	var content []byte
	if err == nil {
		content, err = os.ReadFile(filepath.Join(d.root, documentFolder, name))
	}
	return content, wrap("read document "+name, notFound(err))
}

// ListDocuments is Documents.ListDocuments.
func (d *Dir) ListDocuments(context.Context) (list []Document, err error) {
	entries, err := os.ReadDir(filepath.Join(d.root, documentFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinished) {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list documents: %w", err)
		}
		list = append(list, Document{entry.Name(), info.ModTime()})
	}
	return list, wrap("list documents", err)
}

// RemoveDocument is Documents.RemoveDocument.
func (d *Dir) RemoveDocument(_ context.Context, name string) error {
	err := checkDocument(name)
	folder := filepath.Join(d.root, documentFolder)
	if err == nil {
		if err = os.Remove(filepath.Join(folder, name)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err == nil {
		err = durable.SyncFolder(folder)
	}
	return wrap("remove document", err)
}

// PutDocument is Documents.PutDocument.
func (s *S3) PutDocument(ctx context.Context, name string, content []byte) error {
	err := checkDocument(name)
	if err == nil {
		_, err = s.put(ctx, s.key(documentFolder+"/"+name), content)
	}
	return wrap("write document", err)
}

// Document is Documents.Document.
func (s *S3) Document(ctx context.Context, name string) ([]byte, error) {
	content, err := s.document(ctx, name)
	return content, wrap("read document "+name, err)
}

func (s *S3) document(ctx context.Context, name string) ([]byte, error) {
	if err := checkDocument(name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := s.open(ctx, documentFolder+"/"+name, 0)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(body)
	return content, s3Error(errors.Join(err, body.Close()))
}

// ListDocuments is Documents.ListDocuments.
func (s *S3) ListDocuments(ctx context.Context) (list []Document, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.key(documentFolder + "/")
	for object := range s.core.ListObjectsIter(ctx, s.config.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, fmt.Errorf("list documents: %w", s3Error(object.Err))
		}
		list = append(list, Document{strings.TrimPrefix(object.Key, prefix), object.LastModified})
	}
	return list, nil
}

// RemoveDocument is Documents.RemoveDocument.
func (s *S3) RemoveDocument(ctx context.Context, name string) error {
	err := checkDocument(name)
	if err == nil {
		err = s.delete(ctx, documentFolder+"/"+name)
	}
	return wrap("remove document", err)
}
