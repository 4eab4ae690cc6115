package sqldb

import (
	"context"
	"fmt"
)

// Size is the size of the database in bytes. For SQLite it includes the write-ahead
// log and the free pages of the file.
func (db *DB) Size(ctx context.Context) (int64, error) {
	statement := "SELECT pg_database_size(current_database())"
	if db.engine == SQLite {
		statement = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	}
	var size int64
	if _, err := db.Row(ctx, statement, nil, &size); err != nil {
		return 0, fmt.Errorf("size of the database: %w", err)
	}
	log, err := db.LogSize()
	return size + log, err
}
