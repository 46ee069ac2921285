import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.spark.sql.MergeIntoWriter;

/**
 * Runs a merge whose snapshot carries properties.
 *
 * <p>MERGE has no write options, so Iceberg takes the properties from the thread that runs it. Janino compiles this
 * class in the session: no lambdas and no generics.
 */
public final class MergeCommit {
  public void merge(final MergeIntoWriter writer, Map properties) throws Exception {
    CommitMetadata.withCommitProperties(
        properties,
        new Callable() {
          public Object call() {
            writer.merge();
            return null;
          }
        },
        RuntimeException.class);
  }
}
