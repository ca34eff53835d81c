//! Rows of any content, as a damaged disk or another program may leave them.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};

/// What stands in one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyValue {
    /// Nothing.
    Null,
    /// A number.
    Number(i64),
    /// A text, which need not be UTF-8.
    Text(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A connection that writes what no store would.
#[derive(Debug)]
pub struct AnyRows {
    connection: SqliteConnection,
}

impl AnyRows {
    /// The tables, each with how many columns it has.
    pub const TABLES: [(&'static str, usize); 5] = [
        ("execution", 14),
        ("event", 4),
        ("log", 10),
        ("label", 3),
        ("spec", 2),
    ];

    /// Takes from a database that no store has open what keeps the kinds of its columns apart.
    ///
    /// # Errors
    /// What the database says.
    pub async fn loosen(path: &Path) -> Result<(), sqlx::Error> {
        let mut connection = connect(path).await?;
        let text = "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(replace(sql, ') STRICT', ')'), ' NOT NULL', '')
             WHERE type = 'table' AND name IN ('execution', 'event', 'log', 'label', 'spec');
             UPDATE sqlite_schema SET sql = replace(sql, '), WITHOUT', ') WITHOUT')";
        sqlx::raw_sql(text).execute(&mut connection).await?;
        connection.close().await
    }

    /// Opens a database that was made loose.
    ///
    /// # Errors
    /// What the database says.
    pub async fn open(path: &Path) -> Result<Self, sqlx::Error> {
        let connection = connect(path).await?;
        Ok(Self { connection })
    }

    /// Puts these rows in the place of all others. What the database itself refuses, such as a second
    /// row with the same key, is not there afterwards.
    ///
    /// # Errors
    /// What the database says.
    pub async fn replace(&mut self, rows: &[(usize, Vec<AnyValue>)]) -> Result<(), sqlx::Error> {
        let connection = &mut self.connection;
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        for (table, _) in Self::TABLES {
            let text = format!("DELETE FROM {table}");
            let statement = sqlx::raw_sql(AssertSqlSafe(text));
            statement.execute(&mut *connection).await?;
        }
        for (table, values) in rows {
            let (table, columns) = Self::TABLES[table % Self::TABLES.len()];
            // A value that is bound as text has to be UTF-8.
            let places: Vec<&str> = (0..columns)
                .map(|index| match values.get(index) {
                    Some(AnyValue::Text(_)) => "CAST(? AS TEXT)",
                    _ => "?",
                })
                .collect();
            let text = format!("INSERT INTO {table} VALUES ({})", places.join(", "));
            let mut query = sqlx::query(AssertSqlSafe(text));
            for index in 0..columns {
                query = match values.get(index).cloned().unwrap_or(AnyValue::Null) {
                    AnyValue::Null => query.bind(None::<i64>),
                    AnyValue::Number(number) => query.bind(number),
                    AnyValue::Text(bytes) | AnyValue::Bytes(bytes) => query.bind(bytes),
                };
            }
            // It is as good as not written.
            query.execute(&mut *connection).await.ok();
        }
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        Ok(())
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Off)
        .disable_statement_logging();
    options.connect().await
}
