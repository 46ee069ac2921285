import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.spark.sql.MergeIntoWriter;

/**
 * Loops over Iceberg's files and file tasks, and a merge whose snapshot carries properties.
 *
 * <p>Janino compiles it in the session, as it compiles the code that Spark generates: no lambdas and no generics. Texts
 * of many files cross to Python as one text, separated by null characters.
 */
public final class JavaHelper {
  private static final String SEPARATOR = "\0";
  private static final int SHORT = 2500;
  private static final Object[] NOTHING = new Object[0];
  private static final DeleteFile[] NO_DELETES = new DeleteFile[0];

  /** A long text stays in the JVM, and Python reads it in parts: see `fetch_text`. */
  private static Object answer(CharSequence text) {
    return text.length() <= SHORT ? (Object) text.toString() : new StringBuilder(text);
  }

  public Object metadata(Table table) {
    for (Object item : table.snapshots()) {
      Snapshot snapshot = (Snapshot) item;
      if (snapshot.manifestListLocation() == null) {
        // Writing its JSON would make it remember manifests that cannot be read.
        snapshot.allManifests(table.io());
      }
    }
    return answer(TableMetadataParser.toJson(((HasTableOperations) table).operations().current()));
  }

  private static Object joined(Iterable texts) {
    return answer(String.join(SEPARATOR, texts));
  }

  /** One fact about each of these files or tasks; most are named by the method of `ContentFile`. */
  public Object texts(List items, String what) throws Exception {
    Method method = null;
    for (Method each : ContentFile.class.getMethods()) {
      method = each.getName().equals(what) ? each : method;
    }
    List texts = new ArrayList(items.size());
    for (Object item : items) {
      texts.add(String.valueOf(method == null ? fact(item, what) : method.invoke(file(item), NOTHING)));
    }
    return joined(texts);
  }

  private static Object fact(Object item, String what) {
    switch (what) {
      case "delete digest":
        return deleteDigest(((FileScanTask) item).deletes());
      case "deleted rows":
        long rows = 0;
        for (Object file : ((FileScanTask) item).deletes()) {
          rows += ((DeleteFile) file).recordCount();
        }
        return Long.valueOf(rows);
      case "target":
        return ContentFileUtil.referencedDataFileLocation((DeleteFile) item);
      case "place":
        return place((DeleteFile) item);
      default:
        throw new IllegalArgumentException(what);
    }
  }

  private static Object file(Object item) {
    return item instanceof FileScanTask ? ((FileScanTask) item).file() : item;
  }

  /** A digest of 128 bits of the set of delete files; null for none. */
  private static Object deleteDigest(List deletes) {
    Set places = new TreeSet();
    for (Object file : deletes) {
      places.add(place((DeleteFile) file));
    }
    return places.isEmpty() ? null : UUID.nameUUIDFromBytes(places.toString().getBytes(StandardCharsets.UTF_8));
  }

  /** Several deletion vectors share one Puffin file and differ by their offset in it. */
  private static String place(DeleteFile file) {
    return file.location() + "#" + file.contentOffset();
  }

  public List at(List items, String positions) {
    List chosen = new ArrayList();
    for (String position : positions.split(SEPARATOR)) {
      chosen.add(items.get(Integer.parseInt(position)));
    }
    return chosen;
  }

  public List chosen(List files, String locations) {
    Set wanted = set(locations);
    List chosen = new ArrayList();
    for (Object file : files) {
      if (wanted.contains(((ContentFile) file).location())) {
        chosen.add(file);
      }
    }
    return chosen;
  }

  /**
   * A scan of a snapshot by the schema of today: Iceberg's own would have the names and the partition types of that
   * time.
   */
  public TableScan scan(Table table, long snapshotId) {
    Snapshot snapshot = table.snapshot(snapshotId);
    if (snapshot == null) {
      throw new IllegalArgumentException("Cannot find snapshot with ID " + snapshotId);
    }
    return new TableAt((BaseTable) table, snapshot).newScan();
  }

  private static final class TableAt extends BaseTable {
    private final Snapshot snapshot;

    TableAt(BaseTable table, Snapshot snapshot) {
      super(table.operations(), table.name(), table.reporter());
      this.snapshot = snapshot;
    }

    public Snapshot currentSnapshot() {
      return snapshot;
    }
  }

  /** Plan a scan and return the tasks of these data files, and, if asked for, all tasks with delete files. */
  public List planned(TableScan scan, String locations, boolean orDeletes) throws Exception {
    Set wanted = locations == null ? null : set(locations);
    CloseableIterable planned = scan.planFiles();
    try {
      List tasks = new ArrayList();
      for (Object item : planned) {
        FileScanTask task = (FileScanTask) item;
        if (wanted == null || orDeletes && !task.deletes().isEmpty() || wanted.contains(task.file().location())) {
          tasks.add(task);
        }
      }
      return tasks;
    } finally {
      planned.close();
    }
  }

  public Object targets(Map targeted) {
    return joined(targeted.keySet());
  }

  private static Set set(String texts) {
    return new HashSet(Arrays.asList(texts.split(SEPARATOR)));
  }

  /**
   * The delete files of a snapshot that apply to one of these data files only, by the location of that file; also the
   * delete files at these places. Null if the snapshot has a delete file that may apply to any data file.
   */
  public Map targeted(Table table, long snapshotId, String locations, String places) throws Exception {
    Set wanted = set(locations);
    Set wantedPlaces = set(places);
    Map targeted = new HashMap();
    for (Object manifest : table.snapshot(snapshotId).deleteManifests(table.io())) {
      ManifestReader reader = ManifestFiles.readDeleteManifest((ManifestFile) manifest, table.io(), table.specs());
      try {
        for (Object item : reader) {
          DeleteFile file = (DeleteFile) item;
          String target = ContentFileUtil.referencedDataFileLocation(file);
          if (target == null) {
            return null;
          }
          if (wanted.contains(target) || wantedPlaces.contains(place(file))) {
            List files = (List) targeted.get(target);
            if (files == null) {
              files = new ArrayList();
              targeted.put(target, files);
            }
            files.add(file);
          }
        }
      } finally {
        reader.close();
      }
    }
    return targeted;
  }

  /**
   * The tasks that planning would return for these data files, or those of these tasks, with the delete files that apply to them.
   *
   * <p>A delete file applies to data files that are not newer; a deletion vector replaces all position deletes
   * (https://iceberg.apache.org/spec/#scan-planning). A file that was appended again after it got a vector is one that
   * Iceberg refuses to read.
   */
  public List tasks(Table table, List files, Map targeted) {
    ResidualEvaluator nothingLeft = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());
    Map schemas = new HashMap();
    Map specs = new HashMap();
    List tasks = new ArrayList(files.size());
    for (Object item : files) {
      DataFile file = (DataFile) file(item);
      Integer id = Integer.valueOf(file.specId());
      if (!specs.containsKey(id)) {
        PartitionSpec spec = (PartitionSpec) table.specs().get(id);
        schemas.put(id, SchemaParser.toJson(spec.schema()));
        specs.put(id, PartitionSpecParser.toJson(spec));
      }
      DeleteFile[] deletes = applying(file, (List) targeted.get(file.location()));
      DataFile bare = (DataFile) file.copyWithoutStats();
      tasks.add(new BaseFileScanTask(bare, deletes, (String) schemas.get(id), (String) specs.get(id), nothingLeft));
    }
    return tasks;
  }

  private static DeleteFile[] applying(DataFile file, List deletes) {
    if (deletes == null) {
      return NO_DELETES;
    }
    List applying = new ArrayList();
    for (Object item : deletes) {
      DeleteFile delete = (DeleteFile) item;
      boolean applies = delete.dataSequenceNumber().longValue() >= file.dataSequenceNumber().longValue();
      if (ContentFileUtil.isDV(delete)) {
        if (!applies) {
          String problem = "The deletion vector of %s is older than the file";
          throw new ValidationException(problem, new Object[] {file.location()});
        }
        return new DeleteFile[] {delete};
      }
      if (applies) {
        applying.add(delete);
      }
    }
    return (DeleteFile[]) applying.toArray(NO_DELETES);
  }

  /** Spark 4.1 finds the table by the key, too. */
  public void stage(Table table, String key, List tasks) {
    ScanTaskSetManager.get().stageTasks(table, key, tasks);
    SparkTableCache.get().add(key, table);
  }

  public void release(Table table, String key) {
    ScanTaskSetManager.get().removeTasks(table, key);
    SparkTableCache.get().remove(key);
  }

  /** MERGE has no write options, so Iceberg takes the properties from the thread that runs it. */
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
