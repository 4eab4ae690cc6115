package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// A backup with recipients is encrypted by age: each file and each blob by itself, but for the list of blobs, which has
// digests and sizes. So a server that has the recipients, which are public, makes and prunes backups, and cannot read
// them; that needs the identity of a recipient. Sizes and checksums of files are those of what is stored. The path of a
// blob depends on the recipients too, so a blob that others can read is never taken for one that these can.

// CheckRecipients refuses what is no list of recipients.
func CheckRecipients(recipients []string) error {
	_, err := parseRecipients(recipients)
	return err
}

func parseRecipients(recipients []string) ([]age.Recipient, error) {
	if len(recipients) == 0 {
		return nil, nil
	}
	parsed, err := age.ParseRecipients(strings.NewReader(strings.Join(recipients, "\n")))
	if err != nil {
		return nil, fmt.Errorf("recipients of backups: %w: age-keygen prints one, age1…", err)
	}
	return parsed, nil
}

// Unlock reads the identities, a file of age-keygen, that open encrypted backups.
func (t *Target) Unlock(identities string) error {
	file, err := os.Open(identities)
	if err != nil {
		return err
	}
	t.identities, err = age.ParseIdentities(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("read the identities in %s: %w", identities, err)
	}
	return nil
}

// plain is a writer without encryption.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// encrypt returns a writer that encrypts for the recipients; Close writes the end.
func encrypt(to io.Writer, recipients []string) (io.WriteCloser, error) {
	parsed, err := parseRecipients(recipients)
	if err != nil || parsed == nil {
		return plain{to}, err
	}
	return age.Encrypt(to, parsed...)
}

// decrypt returns the content of a file or blob of a backup.
func (t *Target) decrypt(m Manifest, content io.ReadCloser) (io.ReadCloser, error) {
	if len(m.Recipients) == 0 {
		return content, nil
	}
	if len(t.identities) == 0 {
		return nil, errors.Join(fmt.Errorf("backup %s is encrypted: give the file with the identity of one of %s (--identity FILE)", m.ID, strings.Join(m.Recipients, ", ")), content.Close())
	}
	d := &decrypted{stored: content}
	var err error
	d.opened, err = age.Decrypt(storedPart{d}, t.identities...)
	if mismatch := new(age.NoIdentityMatchError); errors.As(err, &mismatch) {
		err = fmt.Errorf("backup %s is for %s, and --identity has the identity of none of them: %w", m.ID, strings.Join(m.Recipients, ", "), mismatch)
	}
	if err != nil {
		return nil, errors.Join(d.judge(err), content.Close())
	}
	return d, nil
}

// decrypted reports ErrDamaged for what is stored and does not decrypt.
type decrypted struct {
	stored io.ReadCloser
	opened io.Reader
	failed bool // to read what is stored
}

// storedPart is what age reads.
type storedPart struct{ *decrypted }

func (d storedPart) Read(p []byte) (int, error) {
	n, err := d.stored.Read(p)
	d.failed = d.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}

func (d *decrypted) Read(p []byte) (int, error) {
	n, err := d.opened.Read(p)
	return n, d.judge(err)
}

func (d *decrypted) judge(err error) error {
	mismatch := new(age.NoIdentityMatchError)
	if err == nil || errors.Is(err, io.EOF) || d.failed || errors.As(err, &mismatch) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

func (d *decrypted) Close() error { return d.stored.Close() }

// blobPath is where a target has a blob for the recipients.
func blobPath(recipients []string, digest string) string {
	if len(recipients) == 0 {
		return blobstore.PathOf(digest)
	}
	sum := sha256.Sum256([]byte(strings.Join(append(slices.Sorted(slices.Values(recipients)), digest), "\n")))
	return blobstore.PathOf("sha256:" + hex.EncodeToString(sum[:]))
}
