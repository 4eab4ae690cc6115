package registry

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// wholeRepository matches an index scan by the repository alone, wholeTable a
// scan without an index.
var (
	wholeRepository = regexp.MustCompile(`(?m)\(repository_id=\?\)|\(repository_id = [^()]*\)$`)
	wholeTable      = regexp.MustCompile(`SCAN (b|l|r|q|blobs|repository_blobs|repositories)\b|Seq Scan`)
)

// TestPlans: the cost of the blob queries of a push or pull does not depend on
// the number of blobs, in total or in the repository. Without statistics,
// planners prefer to read all blobs of a repository.
func TestPlans(t *testing.T) {
	statements := map[string]string{
		"findBlob": findBlob, "blobDamaged": blobDamaged, "findBlobDue": findBlobDue, "keepBlob": statement.KeepBlob,
		"insertSmall": statement.InsertSmall, "findSmall": statement.FindSmall, "linkBlob": statement.LinkBlob, "unlinkBlob": statement.UnlinkBlob,
	}
	arguments := strings.NewReplacer("$1", "'1'", "$2", "'2'", "$3", "'3'", "$4", "'4'", "$5", "'5'")
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		all := map[string]string{"shareBlobs": shareBlobsSQLite}
		if db.Engine() == sqldb.Postgres {
			all = map[string]string{"shareBlobs": shareBlobsPostgres}
		}
		maps.Copy(all, statements)
		for name, s := range all {
			plan := dbtest.Plan(t, db.Engine(), db.Reader(), arguments.Replace(s))
			if wholeRepository.MatchString(plan) || wholeTable.MatchString(plan) || !strings.Contains(plan, "digest") && !strings.Contains(plan, "path") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	})
}

// smallScan matches the scan of a list or of a table that does not grow.
var smallScan = regexp.MustCompile(`SCAN (list|page|found|json_each|CONSTANT ROW|\d+ CONSTANT ROWS?)\b`)

// TestPlansOfSQLite: SQLite reads no table from its beginning for a request, nor all of a
// repository. What PostgreSQL reads is counted by TestLookUps.
func TestPlansOfSQLite(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	statements := map[string]string{
		"findTarget": findTarget, "repositoryThere": repositoryThere, "findUpload": findUpload, "claimUpload": claimUpload, "saveUpload": saveUpload,
		"releaseUpload": releaseUpload, "deleteUpload": deleteUpload, "findManifest": findManifest, "findTagged": findTagged,
		"manifestDue": manifestDue, "insertLayers": insertLayersSQLite, "insertReferences": insertReferencesSQLite,
		"lockManifest": lockManifestSQLite, "listParents": listParents, "deleteManifest": deleteManifest,
		"rememberManifest": rememberManifest, "rememberTags": rememberTags, "findDeletedManifest": findDeletedManifest,
		"listTags": listTags, "listTagDetails": listTagDetails, "notePull": notePullSQLite, "listReferrers": listReferrers, "shareManifests": statement.ShareManifestsSQLite,
		"insertManifest": statement.InsertManifest, "putTag": statement.PutTag, "deleteTag": statement.DeleteTag,
		"keepManifest": statement.KeepManifest, "insertBlob": statement.InsertBlob,
	}
	maps.Copy(statements, triggerStatements(t, db))
	argument := regexp.MustCompile(`\$\d+`)
	for name, s := range statements {
		plan := dbtest.Plan(t, sqldb.SQLite, db.Reader(), argument.ReplaceAllString(s, "'1'"))
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "SCAN ") && !smallScan.MatchString(line) || wholeRepository.MatchString(line) {
				t.Errorf("%s:\n%s", name, plan)
				break
			}
		}
	}
}

// triggerStatements returns what the triggers of the registry run.
func triggerStatements(t *testing.T, db *sqldb.DB) map[string]string {
	t.Helper()
	found := map[string]string{}
	row := regexp.MustCompile(`\b(NEW|OLD)\.\w+`)
	for _, trigger := range dbtest.NewSQL(t, db).Strings(`SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND (name LIKE 'gc_%' OR name LIKE 'tags_%' OR name LIKE 'blobs_%')`) {
		head, body, _ := strings.Cut(trigger, "\nBEGIN\n")
		name := strings.Fields(head)[2]
		body, _, _ = strings.Cut(body, "END;")
		for i, s := range strings.Split(strings.TrimSuffix(strings.TrimSpace(body), "END"), ";\n") {
			if s = strings.TrimSpace(row.ReplaceAllString(s, "'1'")); s != "" && !strings.Contains(s, "raise(") {
				found[fmt.Sprint(name, " ", i)] = s
			}
		}
	}
	if len(found) < 20 {
		t.Fatalf("%d statements of triggers were found", len(found))
	}
	return found
}
